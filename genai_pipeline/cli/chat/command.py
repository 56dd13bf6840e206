"""``genai-pipeline chat PACKAGE``: a conversation with slash commands, on a terminal or through pipes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from genai_pipeline.cli import run_options as groups
from genai_pipeline.cli.option_groups import takes
from genai_pipeline.cli.run_request import RunRequest

if TYPE_CHECKING:
    from genai_pipeline.cli.chat.state import Chat
    from genai_pipeline.cli.chat.terminal import Terminal
    from genai_pipeline.cli.output import Output

NoHistory = Annotated[bool, typer.Option("--no-history", help="Keep nothing of what is typed for later chats.")]

_NO_LINES: Final = "note: pip install 'genai-pipeline[chat]' brings line editing, history and completion"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("chat")(chat)


@takes(
    groups.PROMPT.only("system", "session", "chat_template_kwargs", "parameters"),
    groups.LENGTH.only("max_new_tokens", "min_new_tokens", "stop", "stop_token_ids", "ignore_eos"),
    groups.CHOOSING,
    groups.PENALTIES,
    groups.FORM,
    groups.TOOLS,
    groups.QUEUE,
    groups.LOADING,
    groups.SPECULATION,
)
def chat(ctx: typer.Context, package: groups.Package, no_history: NoHistory = False, **options: Any) -> None:
    """Hold a conversation.

    /help shows the commands. Through pipes, every line is said in turn, answers go to stdout and nothing else does.
    """
    asked = RunRequest.of(options, as_json=False)
    held = _Opening(ctx.obj, no_history).chat(package, asked)
    try:
        from genai_pipeline.cli.chat.repl import Repl

        code = Repl(held).run()
        if asked.session is not None:
            held.conversation.session.save(asked.session)
    finally:
        held.close()
    if code:
        raise typer.Exit(code)


class _Opening:
    """Puts together what a chat consists of."""

    def __init__(self, output: Output, no_history: bool) -> None:
        self._output = output
        self._keeps = not no_history
        self._chat: Chat | None = None

    def chat(self, package: str, asked: RunRequest) -> Chat:
        """The chat, ready to begin. Raises what ``gp.load`` does, CheckpointError or RequestError."""
        from genai_pipeline.cli.chat.conversation import Forks
        from genai_pipeline.cli.chat.model import Model
        from genai_pipeline.cli.chat.options import ChatOptions, check
        from genai_pipeline.cli.chat.state import Chat
        from genai_pipeline.cli.chat.talking import system

        terminal = self._terminal()
        options = dict(asked.options)
        opening = options.pop("system", None)
        model = Model(package, asked.loading, terminal.progress)
        try:
            check(model.pipe, options)
            known = asked.session if asked.session is not None and os.path.lexists(asked.session) else None
            made = Chat(terminal, model, ChatOptions(options), Forks(model.pipe.session(known)))
            if opening is not None:
                system(made, opening)
        except BaseException:
            model.close()
            raise
        self._chat = made
        if terminal.interactive:
            terminal.note(f"{model.name}: /help shows the commands, Ctrl-D ends")
        return made

    def _terminal(self) -> Terminal:
        """The best there is for where stdin and stdout go. Raises RequestError without stdin."""
        from genai_pipeline.cli.chat.plain import PlainTerminal

        if not _at_terminal():
            return PlainTerminal(self._output)
        try:
            from genai_pipeline.cli.chat.prompting import PromptTerminal
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "prompt_toolkit":
                raise
            self._output.note(_NO_LINES)
            return PlainTerminal(self._output)
        from genai_pipeline.cli.chat.completion import Offer, offers
        from genai_pipeline.cli.chat.history import FILE, History
        from genai_pipeline.importers.cache import data_home

        def complete(line: str) -> tuple[Offer, ...]:
            return () if self._chat is None else tuple(offers(self._chat, line))

        kept = History(data_home() / FILE if self._keeps else None, self._output.note)
        return PromptTerminal(self._output, kept, complete)


def _at_terminal() -> bool:
    """Whether a person can edit lines where the chat is held."""
    ends = (sys.stdin, sys.stdout)
    return all(end is not None and end.isatty() for end in ends) and os.environ.get("TERM") != "dumb"
