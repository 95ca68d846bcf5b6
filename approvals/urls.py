from django.http import HttpResponse
from django.urls import path

app_name = "approvals"
urlpatterns = [path("", lambda request: HttpResponse("inbox"), name="inbox")]
