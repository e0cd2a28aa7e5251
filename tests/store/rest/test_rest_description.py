"""The REST description, as a document and as a page."""

from drumline.web import openapi
from drumline.web.routes import PREFIX, TABLE
from tests.store.job_samples import SAMPLE
from tests.web_site import Site


def test_the_document_describes_every_endpoint(site: Site) -> None:
    document = site("GET", "//api/openapi.json", by=None).document
    assert document["openapi"] == "3.1.0"
    described = {
        (method.upper(), path.removeprefix(PREFIX))
        for path, ways in document["paths"].items()
        for method in ways
    }
    assert described == {(endpoint.method, endpoint.path) for endpoint in TABLE}
    operations = [o for ways in document["paths"].values() for o in ways.values()]
    assert len({o["operationId"] for o in operations}) == len(operations)
    assert all(o["summary"] and "`drumline" not in o["summary"] for o in operations)
    create = document["paths"]["/api/v1/jobs"]["post"]["requestBody"]
    schema = create["content"]["application/json"]["schema"]
    assert schema["required"] == ["name", "cron_expr"] and set(SAMPLE) <= set(schema["properties"])
    submit = document["paths"]["/api/v1/batches"]["post"]["requestBody"]
    assert "name" in submit["content"]["application/json"]["schema"]["required"]
    listing = document["paths"]["/api/v1/tasks"]["get"]["parameters"]
    (status,) = (one for one in listing if one["name"] == "status")
    assert status["description"] == "Only tasks in these states; all states if none is given."


def test_the_page_shows_every_endpoint_and_loads_no_files(site: Site) -> None:
    start = site("GET", "//", by=None)
    assert (start.status, start.headers["location"]) == (307, "/api/docs")
    page = site("GET", "//api/docs", by=None)
    assert page.headers["content-type"].startswith("text/html")
    text = page.body.decode()
    for path, ways in openapi.document()["paths"].items():
        for operation in ways.values():
            assert f'id="{operation["operationId"]}"' in text
        assert path in text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "src=" not in text and "http://" not in text and "https://" not in text
