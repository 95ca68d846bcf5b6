"""The pages on which people decide. Every path needs a session; settings say so once."""

from __future__ import annotations

from django.urls import path

from approvals.views import detail, edit, inbox, policy

app_name = "approvals"
urlpatterns = [
    path("", inbox.inbox, name="inbox"),
    path("approvals/<uuid:approval_id>/", detail.approval_detail, name="approval-detail"),
    path("approvals/<uuid:approval_id>/decide", detail.decide, name="decide"),
    path("approvals/<uuid:approval_id>/edit", edit.edit, name="edit"),
    path("approvals/<uuid:approval_id>/reopen", detail.reopen, name="reopen"),
    path("policy/", policy.policy_page, name="policy"),
]
