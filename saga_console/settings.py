"""Settings of the console. Everything that differs between places comes from the environment;
docs/operating.md lists every variable. Nothing is started here.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from saga_console import environment as env
from saga_console.home import BASE_DIR, HomeError, current_home
from saga_console.mailserver import mail_server

HOME = current_home()

# Security
try:
    SECRET_KEY = env.text("SECRET_KEY") or HOME.secret_key()
except HomeError as error:
    raise SystemExit(str(error)) from None
DEBUG = env.flag("DEBUG", default=False)
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.words("CSRF_TRUSTED_ORIGINS")
# Off by default because the console starts on plain http://127.0.0.1; set SECURE=1 behind TLS.
SECURE = env.flag("SECURE", default=False)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE
SESSION_COOKIE_NAME = "__Host-saga" if SECURE else "saga"
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Strict"
# One shift, counted from the last request; the row is written at most once a request of a page.
SESSION_COOKIE_AGE = int(timedelta(hours=12).total_seconds())
SESSION_EXPIRE_AT_BROWSER_CLOSE = True
SECURE_HSTS_SECONDS = int(timedelta(days=365).total_seconds()) if SECURE else 0
SECURE_SSL_REDIRECT = SECURE
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$"]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if SECURE else None
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# Three deployment checks look for Django's own middleware by name and do not see our subclasses;
# tests/test_middleware.py checks what they would.
SILENCED_SYSTEM_CHECKS = ["security.W001", "security.W002", "security.W003"]

# For crash tests of the console itself: a folder that says where its processes stop
# (ledger/faultpoints.py). It has no place where the effects are real.
SAGA_FAULTS = env.private_folder("SAGA_FAULTS")
if SAGA_FAULTS and SECURE:
    raise env.BadSetting("SAGA_FAULTS", "stops processes for crash tests: unset it (SECURE=1)")

# Application
ROOT_URLCONF = "saga_console.urls"
WSGI_APPLICATION = "saga_console.wsgi.application"
INSTALLED_APPS = [
    "saga_console",
    "approvals",
    "ledger",
    "django_htmx",
    "template_partials",
    "django_rq",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
]
if env.flag("SAGA_DEMO", default=False):  # set by `up --demo` for what it starts
    INSTALLED_APPS.append("saga_console.demo")
# Apps of your own, for their `tools.py`: importable names, separated by commas.
INSTALLED_APPS += env.modules("SAGA_APPS")
MIDDLEWARE = [
    "saga_console.middleware.ContentSecurityPolicy",
    "saga_console.middleware.PageSecurity",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "saga_console.middleware.PageSessions",
    "saga_console.middleware.PageCommon",
    "saga_console.middleware.PageCsrf",
    "saga_console.middleware.PageLogins",
    "saga_console.middleware.PageLoginRequired",
    "saga_console.middleware.PageMessages",
    "saga_console.middleware.PageFrames",
    "saga_console.middleware.PageHtmx",
    "saga_console.middleware.PageText",
]
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]
AUTHENTICATION_BACKENDS = ["saga_console.doorstep.CountedBackend"]
# How many proxies of your own stand in front: an address is taken from `X-Forwarded-For` only
# as far as they wrote it.
SAGA_PROXIES = env.number("SAGA_PROXIES", 0)
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("MinimumLengthValidator", "CommonPasswordValidator", "NumericPasswordValidator")
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "login"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
# A body is read into memory before a view can refuse it; the API's own limit is lower.
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024


# Database
def _database(url: str) -> dict[str, Any]:
    wrong = env.BadSetting("DATABASE_URL", "postgresql://USER:PASSWORD@HOST:PORT/NAME is needed")
    if not url.startswith(("postgresql://", "postgres://")):
        raise wrong
    try:
        given = conninfo_to_dict(url)
    except ProgrammingError as error:
        raise env.BadSetting("DATABASE_URL", str(error).strip()) from None
    if not given.get("dbname"):
        raise wrong
    written = str(given.pop("options", ""))
    options = f"{_options(_SERVER_LIMITS)} {written} {_options(_SERVER_RULES)}"
    named = {field: str(given.pop(key, "")) for field, key in _DATABASE_FIELDS.items()}
    return named | {
        # A pool, because connecting (4 ms) costs more than a whole transition, and because
        # a request that waits for a step must be able to give its connection back and have
        # one again for 0.06 ms. This engine is Django's, and looks at what the pool gives:
        # a restarted server is noticed.
        "ENGINE": "saga_console.postgres",
        "CONN_MAX_AGE": 0,
        "OPTIONS": given | {"options": options, "pool": dict(_POOL)},
    }


def _options(settings: dict[str, str]) -> str:
    return " ".join(f"-c {name}={value}" for name, value in settings.items())


# At most one for each web thread. Who gets none within the timeout is told 503, try again.
_POOL = {"min_size": 2, "max_size": 64, "timeout": 10.0}
_DATABASE_FIELDS = {
    "NAME": "dbname",
    "USER": "user",
    "PASSWORD": "password",
    "HOST": "host",
    "PORT": "port",
}
_SERVER_LIMITS = {
    "application_name": env.text("SAGA_APPLICATION_NAME", "saga-console"),
    # Nothing on the path of a step takes longer than milliseconds. 15 s lets a page of an
    # archive of millions finish and ends a query that has lost its plan.
    "statement_timeout": f"{env.number('SAGA_STATEMENT_TIMEOUT_MS', 15_000)}ms",
    # A row is held for one short transaction. Who waits 5 s for one waits for a lost holder,
    # and is better off with an error that the caller may retry.
    "lock_timeout": f"{env.number('SAGA_LOCK_TIMEOUT_MS', 5_000)}ms",
    # Nobody thinks inside a transaction: a silent one has lost its client and holds locks.
    "idle_in_transaction_session_timeout": f"{env.number('SAGA_IDLE_TIMEOUT_MS', 10_000)}ms",
    # What is prepared finds its rows by keys; planning it anew for each value costs more than
    # running it (a claim: 2.4 ms against 2.1).
    "plan_cache_mode": "force_generic_plan",
}
# What neither the server nor the URL may choose otherwise: the engine stands on it.
_SERVER_RULES = {
    # The engine guards every write by state and fence, and counts on seeing committed rows.
    "default_transaction_isolation": r"read\ committed",
    # A call goes out once its intent is committed. One that a power cut takes back was sent by
    # nobody, as far as the ledger knows, and would be sent again.
    "synchronous_commit": "on",
}
DATABASES = {"default": _database(env.text("DATABASE_URL") or HOME.database_url)}

# Queue: one, because then RQ moves a job atomically. Jobs are JSON and carry no secrets.
REDIS_URL = env.text("REDIS_URL") or HOME.redis_url
RQ_QUEUES = {
    "shifts": {
        "URL": REDIS_URL,
        "DEFAULT_TIMEOUT": -1,  # a shift has a limit of its own; RQ killing it would help nobody
        "SERIALIZER": "rq.serializers.JSONSerializer",
        # A relay that waited for ever for a Redis that says nothing would sweep nothing. A worker
        # waits in a read for minutes: RQ raises its time-out by itself.
        "REDIS_CLIENT_KWARGS": {
            "socket_connect_timeout": 5,
            "socket_timeout": 5,
            "health_check_interval": 30,
        },
    }
}
# The relay rings inside no transaction of its own: enqueue at once, not after a commit.
RQ = {"COMMIT_MODE": "auto"}

# What steps run, and who says yes
SAGA_TOOLS = env.text("SAGA_TOOLS")
SAGA_POLICY = env.text("SAGA_POLICY")
SAGA_GATE = env.text("SAGA_GATE", "approvals.gate.Gate")
# A page asks for the password again before a decision on a high blast radius, when this session
# last gave it longer ago. 15 min: a morning's inbox costs one password, a forgotten screen none.
SAGA_STEP_UP_S = env.seconds("SAGA_STEP_UP_S", 900)
# Up to which blast radius a person's bearer token may decide over REST; beyond, only a page may.
SAGA_TOKENS_DECIDE = env.one_of("SAGA_TOKENS_DECIDE", ("high", "medium", "low", "none"))
# Where `manage.py archive` puts exports, and where pages look for them.
SAGA_ARCHIVE = env.text("SAGA_ARCHIVE") or str(HOME.root / "archive")

# Who is told, and how. Links in messages begin with SAGA_URL; `up` says where it listens.
SAGA_CHANNELS = env.text("SAGA_CHANNELS")
SAGA_URL = env.text("SAGA_URL") or (
    f"http://{env.text('SAGA_HOST', '127.0.0.1')}:{env.number('PORT', 8400)}"
)
# Hosts to which a saga's own webhook may lead: an agent names the address.
SAGA_WEBHOOK_HOSTS = env.words("SAGA_WEBHOOK_HOSTS")
SAGA_MAIL_FROM = DEFAULT_FROM_EMAIL = env.text("SAGA_MAIL_FROM")
SAGA_MAIL_URL = env.text("SAGA_MAIL_URL")
_MAIL = mail_server("SAGA_MAIL_URL", SAGA_MAIL_URL)
EMAIL_HOST, EMAIL_PORT = _MAIL.host, _MAIL.port
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = _MAIL.user, _MAIL.password
EMAIL_USE_TLS, EMAIL_USE_SSL = _MAIL.starttls, _MAIL.tls

# The engine. A lease outlives the tool's own timeout in any case; these are the floor.
SAGA_LEASE_S = env.seconds("SAGA_LEASE_S", 15, at_least=1)
# A lease outlives the tool's own timeout by this much, for the answer to be written down. Under
# 5 s a slow COMMIT makes doubts out of answers that came: safe, and needless work.
SAGA_LEASE_MARGIN_S = env.seconds("SAGA_LEASE_MARGIN_S", 5, at_least=0.5)
# "Not applied" counts when it is heard twice, this far apart.
SAGA_PROBE_APART_S = env.seconds("SAGA_PROBE_APART_S", 2)
# Retries that one saga may spend in all, unless it names its own number.
SAGA_RETRY_BUDGET = env.number("SAGA_RETRY_BUDGET", 20)
# Shifts at the same time: one for each worker.
SAGA_SHIFTS = env.number("SAGA_SHIFTS", min(2, os.cpu_count() or 1), at_least=1)
# Steps side by side in one shift: they wait on the network. Each holds no connection meanwhile.
SAGA_SHIFT_THREADS = env.number("SAGA_SHIFT_THREADS", 16, at_least=1)
# How long a shift waits for more work before it hands its worker back (long enough that a lone
# step after a quiet minute still finds one awake), and its longest stay.
SAGA_SHIFT_LINGER_S = env.seconds("SAGA_SHIFT_LINGER_S", 150)
SAGA_SHIFT_LIMIT_S = env.seconds("SAGA_SHIFT_LIMIT_S", 900, at_least=1)
# How long a killed worker's shift still looks alive.
SAGA_SHIFT_LEASE_S = env.seconds("SAGA_SHIFT_LEASE_S", 5, at_least=1)
# A ring that no worker has answered for this long is rung again.
SAGA_RING_GRACE_S = env.seconds("SAGA_RING_GRACE_S", 3, at_least=1)
# Requests that may block in `Prefer: wait` at once; the other web threads stay free.
SAGA_WAITERS = env.number("SAGA_WAITERS", 48, at_least=1)

# Static files: hashed names, compressed, cached for ever, served by the web process itself.
STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = HOME.root / "static"
# Whoever works on them wants them as they are on the disk now, without `collectstatic`.
_FROM_SOURCE = env.flag("SAGA_STATIC_FROM_SOURCE", default=DEBUG)
_HASHED = "whitenoise.storage.CompressedManifestStaticFilesStorage"
_PLAIN = "django.contrib.staticfiles.storage.StaticFilesStorage"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": _PLAIN if _FROM_SOURCE else _HASHED},
}
WHITENOISE_USE_FINDERS = WHITENOISE_AUTOREFRESH = _FROM_SOURCE
WHITENOISE_KEEP_ONLY_HASHED_FILES = True

# Times are UTC in the database, in logs and in the API; pages show them to people.
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
USE_I18N = False

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "()": "ledger.masking.Formatter",
            "fmt": "{asctime} {levelname:<7} {name}: {message}",
            "style": "{",
            "datefmt": "%H:%M:%S",
        }
    },
    "handlers": {
        "stdout": {
            "class": "logging.StreamHandler",
            "stream": "ext://sys.stdout",
            "formatter": "line",
        }
    },
    "root": {"handlers": ["stdout"], "level": env.text("LOG_LEVEL", "INFO").upper()},
    "loggers": {
        "django": {"handlers": [], "level": "INFO", "propagate": True},
        # RQ tells of every job; a shift is not news.
        "rq.worker": {"level": "WARNING"},
        "httpx": {"level": "WARNING"},
        # A refused request is told to its caller; 409 is a daily answer and no warning.
        "django.request": {"level": "ERROR"},
    },
}
