"""How people come in and go out: Django's own views with our page."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import views
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import path, reverse

from approvals.views import presence
from saga_console.doorstep import wait_of

# One sentence for whichever was wrong: who guesses learns nothing about names from it.
_WRONG = (
    "This username and password do not belong together. Check both, capital letters count, and try "
    "again. Forgotten? Whoever runs the console sets a new password with manage.py operator."
)


class SignInForm(AuthenticationForm):
    error_messages = {"invalid_login": _WRONG, "inactive": _WRONG}


class Login(views.LoginView):
    """`next` is followed only to this host: LoginView checks it."""

    form_class = SignInForm
    redirect_authenticated_user = True

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        answer = super().form_valid(form)
        presence.mark(self.request)
        return answer

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        wait_s = wait_of(self.request)
        if not wait_s:
            return super().form_invalid(form)
        context: dict[str, Any] = self.get_context_data(form=form, wait_min=-int(-wait_s // 60))
        answer = self.render_to_response(context, status=429)
        answer.headers["Retry-After"] = str(int(wait_s) + 1)
        return answer


@login_not_required
def admin_login(request: HttpRequest) -> HttpResponse:
    """To the one way in; who is in already and still sent here may not see the admin."""
    if request.user.is_authenticated:
        raise PermissionDenied
    return redirect_to_login(request.GET.get("next") or reverse("admin:index"))


urlpatterns = [
    path("login/", Login.as_view(), name="login"),
    path("logout/", views.LogoutView.as_view(), name="logout"),
    # One door with one count: the admin's own form would be a second.
    path("admin/login/", admin_login),
]
