"""The only writers of requests and decisions. The gate and the edges call these.

requesting.ask(held, verdict) · requesting.withdraw(steps, why)      join the ledger's transaction
rechecking.recheck(held) -> str                                      joins it too
deciding.approve / reject / request_change(bearer, approval_id, …) -> Decided
reopening.reopen(bearer, approval_id, …) -> Decided
expiring.sweep() -> int                                              one transaction a request
"""
