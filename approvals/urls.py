app_name = "approvals"
urlpatterns = []
