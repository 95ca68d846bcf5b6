"""The pages on which people decide. Every path needs a session; settings say so once."""

from __future__ import annotations

from django.urls import path

from approvals.views import bulk, cover, detail, edit, glass, inbox, policy

app_name = "approvals"
urlpatterns = [
    path("", inbox.inbox, name="inbox"),
    path("approvals/<uuid:approval_id>/", detail.approval_detail, name="approval-detail"),
    path("approvals/<uuid:approval_id>/decide", detail.decide, name="decide"),
    path("approvals/<uuid:approval_id>/edit", edit.edit, name="edit"),
    path("approvals/<uuid:approval_id>/reopen", detail.reopen, name="reopen"),
    path("approvals/<uuid:approval_id>/break-glass", glass.break_glass, name="break-glass"),
    path("approvals/bulk", bulk.decide_many, name="bulk"),
    path("reviews/", glass.reviews, name="reviews"),
    path("reviews/<uuid:review_id>/close", glass.close_review, name="close-review"),
    path("cover/", cover.cover, name="cover"),
    path("cover/<uuid:delegation_id>/withdraw", cover.withdraw, name="withdraw-cover"),
    path("policy/", policy.policy_page, name="policy"),
]
