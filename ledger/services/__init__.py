"""The only writers. One verb a transition; edges (REST, pages, commands, jobs) call these.

Every function opens its own short transaction unless its docstring says that it joins the
caller's. `actor` is a short line that names who: `agent:NAME`, `person:USERNAME`,
`worker:SHIFT`, `clock`.

proposing.propose(saga_id, proposal, *, bearer) -> Answer
together.propose(saga_id, proposal, *, bearer) -> Answer    with those of other threads
opening.open_saga(opening, *, bearer) -> Opened
closing.complete(saga_id, *, bearer) · closing.abort(saga_id, reason, *, bearer)
operating.resolve(step_id, answer, *, result, reason, actor)
operating.retry(step_id, *, reason, actor)
freezing.freeze(scope, value, *, reason, expires_at, actor) · freezing.lift(freeze_id, *, actor)
gating.release(step_id, direction, *, actor, payload)    a yes: join the caller's transaction
gating.refuse(step_id, direction, *, why, actor, payload)  a no or an expiry: join
gating.ask_for_change(step_id, *, text, actor, payload)     join
gating.journal(saga_id, kind, *, step_id, actor, payload)   one entry, no state: join
tokens.issue_agent_token(name, *, tools, owner) -> str · tokens.issue_operator_token(user) -> str
tokens.bearer(raw) -> Bearer
"""
