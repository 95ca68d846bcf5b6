"""How people come in and go out: Django's own views with our page."""

from __future__ import annotations

from django.contrib.auth import views
from django.urls import path

urlpatterns = [
    # `next` is followed only to this host: LoginView checks it.
    path("login/", views.LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("logout/", views.LogoutView.as_view(), name="logout"),
]
