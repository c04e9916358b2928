"""``%%ask`` in real kernels: what goes out, what a front end shows while it comes, what is kept, what failures say."""

from __future__ import annotations

from typing import Any

import pytest

from fairq_ipy.testing import Gate, ScriptedEndpoint, chat, error, html, stream

NASTY = "<img src=x onerror=alert(1)>"

BODIES = [
    "interface A { b: Array<{c: number}>; }\nconst d = `${e.f}`;\n",
    '{"a": {"b": [1, {"c": null}]}}',
    "[x for x in {1: {2: 3}} if x]\n{undefined} {} {{ twice }} $HOME %d %s",
    "\\n \\\\ C:\\new\\table \\{x\\}",
    "!ls\n?x\nx?\n%%time\n%timeit\n%%bash\necho $HOME\n",
    ">>> 1 + 1\n2\n   \n\t\n  indented   \n\n",
    "Zürich 研究 🎈\u2028 \x0c\r\n",
]


def prompts(mock: ScriptedEndpoint) -> list[str]:
    return [request.json["messages"][-1]["content"] for request in mock.requests]


def test_bodies_go_out_byte_for_byte(kernel: Any, mock: ScriptedEndpoint) -> None:
    for body in BODIES:
        assert kernel.run(f"%%ask --tenant 'my team'\n{body}").error is None
    assert prompts(mock) == BODIES


# ---------------------------------------------------------------------------------------------------------------- shown


def test_the_answer_streams_into_one_output_and_is_the_cells_value(kernel: Any, mock: ScriptedEndpoint) -> None:
    half = Gate()
    mock.reply(stream("# Title\n", "one ", half, "two", usage=(5, 3)))
    cell = kernel.send("%%ask\nhello")
    kernel.shows(cell, "# Title\n")
    half.open()
    seen = kernel.finish(cell)
    assert seen.shown[0] == "# Title\none two"
    assert len(seen.items) == 2, "the answer and its footer; not the value once more"
    assert seen.shown[1].startswith("mock-small · 5 + 3 tokens · waited ")
    assert kernel.value("[_.text, str(Out[max(Out)]), _.usage.exact]") == ["# Title\none two", "# Title\none two", True]


def test_the_value_shows_as_markdown_in_another_cell(kernel: Any, mock: ScriptedEndpoint) -> None:
    mock.reply(chat("**bold**"))
    assert kernel.run("answer = %ask hello").shown[0] == "**bold**"
    assert kernel.run("answer").result == {"text/plain": "**bold**", "text/markdown": "**bold**"}


def test_out_assigns_the_answer(kernel: Any, mock: ScriptedEndpoint) -> None:
    mock.reply(chat("yes"))
    kernel.run("%%ask --out verdict\nhello")
    assert kernel.value("[verdict.text, type(verdict).__mro__[1].__name__]") == ["yes", "Answer"]


def test_the_value_can_be_pickled_and_copied(kernel: Any) -> None:
    kernel.run("import copy, pickle; answer = %ask hello")
    assert kernel.value("[pickle.loads(pickle.dumps(answer)).text, copy.deepcopy(answer).text]") == ["hello", "hello"]


def test_an_estimated_count_is_marked(kernel: Any, mock: ScriptedEndpoint) -> None:
    mock.reply(stream("hello", usage=None))
    assert " · about " in kernel.run("%%ask\nhello").shown[1]


def test_an_answer_is_never_markup_of_ours(kernel: Any, mock: ScriptedEndpoint) -> None:
    mock.reply(chat(f"</script>{NASTY}"))
    seen = kernel.run(f"%%ask --tenant '{NASTY}'\nhello")
    assert seen.items[0]["data"] == {"text/plain": f"</script>{NASTY}", "text/markdown": f"</script>{NASTY}"}
    assert NASTY not in seen.items[1]["data"]["text/html"]
    assert NASTY not in kernel.run("%fairq").result["text/html"]


def test_without_stream_the_answer_comes_whole(kernel: Any, mock: ScriptedEndpoint) -> None:
    mock.reply(chat("one two three"))
    seen = kernel.run("%%ask --no-stream\nhello")
    assert seen.shown[0] == "one two three"


# ------------------------------------------------------------------------------------------------------------- waiting


def test_the_waiting_line_says_place_and_reason_and_turns_into_the_answer(kernel: Any, mock: ScriptedEndpoint) -> None:
    mock.hold()
    kernel.run(
        "import threading, fairq_ipy as fairq\n"
        "others = [threading.Thread(target=fairq.ask, args=(f'other {n}',)) for n in range(3)]\n"
        "for other in others: other.start()"
    )
    mock.wait_for(in_flight=2)
    cell = kernel.send("%%ask --tenant logs\nhello")
    kernel.shows(cell, "waits for a free slot, 1 call ahead")
    mock.release()
    assert kernel.finish(cell).shown[0] == "hello"
    assert len(kernel.cells[cell].items) == 2


def test_the_waiting_line_says_that_it_is_paused_and_a_resume_from_elsewhere_is_enough(kernel: Any) -> None:
    kernel.run("%fairq pause")
    kernel.run(
        "import threading, time, fairq_ipy as fairq\n"
        "go = threading.Event()\n"
        "threading.Thread(target=lambda: go.wait(20) and fairq.resume()).start()\n"
        "from comm import create_comm\n"
        "button = create_comm(target_name='button'); button.on_msg(lambda message: go.set())"
    )
    comm = kernel.value("button.comm_id")
    cell = kernel.send("%%ask\nhello")
    kernel.shows(cell, "waits since it is paused (%fairq resume), next in the queue")
    kernel.widget_message(comm, {})
    assert kernel.finish(cell).shown[0] == "hello"


def test_the_waiting_line_says_how_long_the_endpoint_rests(kernel: Any, mock: ScriptedEndpoint) -> None:
    mock.reply(error(429, retry_after=1))
    cell = kernel.send("%%ask\nhello")
    kernel.shows(cell, "waits since the endpoint asked for a rest, 0.")
    assert kernel.finish(cell).shown[0] == "hello"


# ------------------------------------------------------------------------------------------------------- conversations


def test_a_chat_goes_on_and_others_do_not_mix(kernel: Any, mock: ScriptedEndpoint) -> None:
    mock.reply(chat("1"), chat("2"), chat("3"))
    kernel.run("%%ask --chat plans --system 'be brief'\none")
    kernel.run("%%ask --chat plans\ntwo")
    kernel.run("%%ask --chat other\nthree")
    sent = [[message["content"] for message in request.json["messages"]] for request in mock.requests]
    assert sent == [["be brief", "one"], ["be brief", "one", "1", "two"], ["three"]]


def test_a_turn_that_failed_is_not_part_of_the_chat(kernel: Any, mock: ScriptedEndpoint) -> None:
    mock.reply(error(400, "no"), chat("2"))
    assert kernel.run("%%ask --chat plans\none").error is not None
    kernel.run("%%ask --chat plans\ntwo")
    assert [message["content"] for message in mock.requests[1].json["messages"]] == ["two"]


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (error(401, "bad key"), "bad key"),
        (error(404, "no such model"), "no such model"),
        (html("<html>" + "x" * 200_000 + NASTY + "</html>", status=502), "502"),
        (html("<html>" + "x" * 200_000 + NASTY + "</html>", status=200), ""),
    ],
)
def test_an_error_of_the_endpoint_is_a_few_calm_lines(
    kernel: Any, mock: ScriptedEndpoint, reply: Any, says: str
) -> None:
    mock.always(reply)
    seen = kernel.run("%%ask\nhello")
    assert seen.error is not None
    name, text = seen.error
    assert name == "EndpointError"
    assert says in text
    assert "Traceback" not in text
    assert len(text) < 3_000
    assert len(text.splitlines()) < 8
    assert seen.shown in ([], ["no answer: endpoint"]), "nothing, where nothing had been shown"


def test_an_endpoint_that_is_not_there_is_named(kernel: Any, mock: ScriptedEndpoint) -> None:
    mock.close()
    seen = kernel.run("%%ask\nhello")
    assert seen.error is not None
    assert seen.error[0] == "EndpointError"
    assert str(mock.port) in seen.error[1]
    kernel.run("%unload_ext fairq_ipy")


def test_an_answer_that_breaks_off_is_kept_as_far_as_it_came(kernel: Any, mock: ScriptedEndpoint) -> None:
    mock.reply(stream("one ", "two ", "three").cut(2))
    seen = kernel.run("%%ask\nhello")
    assert seen.error is not None
    assert seen.error[0] == "EndpointError"
    assert seen.shown == ["one two ", "no answer: endpoint"]


def test_a_refusal_of_the_queue_is_one_line(kernel: Any, mock: ScriptedEndpoint) -> None:
    kernel.run("%fairq pause logs")
    seen = kernel.run("%%ask --tenant logs --timeout 100ms\nhello")
    assert seen.error is not None
    assert seen.error[0] == "QueueTimeoutError"
    assert len(seen.error[1].splitlines()) == 1
    assert mock.arrivals == 0


def test_a_waiting_line_ends_with_the_refusal(kernel: Any) -> None:
    kernel.run("%fairq pause logs")
    cell = kernel.send("%%ask --tenant logs --timeout 800ms\nhello")
    kernel.shows(cell, "since it is paused")
    assert kernel.finish(cell).shown == ["no answer: queue timeout"]
