"""Every path, command, option and port in docker/ exists in the project. No Docker engine is needed for that."""

import argparse
import ast
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from agent.main import _options
from scheduler.settings import DaemonSettings

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())


def sections() -> dict[str, str]:
    """The text of each stage by its name."""
    parts = re.split(r"^FROM \S+ AS (\S+)$", DOCKERFILE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def entrypoints() -> dict[str, list[str]]:
    found = {name: re.search(r"^ENTRYPOINT (\[.*\])$", text, re.MULTILINE) for name, text in sections().items()}
    return {name: ast.literal_eval(match[1]) for name, match in found.items() if match}


def test_there_is_a_target_for_each_program():
    assert {"daemon", "agent", "worker"} <= sections().keys()


def test_what_is_copied_exists_and_is_all_that_the_wheel_holds():
    copied = [path for line in re.findall(r"^COPY (?!--)(.*) \S+$", DOCKERFILE, re.MULTILINE) for path in line.split()]
    assert [path for path in copied if not (ROOT / path).exists()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= set(copied)


def test_entry_points_are_scripts_or_modules_of_the_project():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for command in entrypoints().values():
        if command[0] == "python":
            module = ROOT / (command[command.index("-m") + 1].replace(".", "/") + ".py")
            assert '__name__ == "__main__"' in module.read_text()
        else:
            assert command[0] in scripts


def test_options_are_known_to_the_programs():
    agent: argparse.ArgumentParser = _options()
    command = [
        *entrypoints()["agent"][1:],
        *(item.replace("${JCT_DEVICES:-cpu:2}", "cpu:2") for item in agent_command()),
    ]
    assert agent.parse_args(command).node == "node-0"
    options = [item for item in entrypoints()["daemon"] if item.startswith("--")]
    assert {option.removeprefix("--").replace("-", "_") for option in options} <= set(DaemonSettings.model_fields)


def agent_command() -> list[str]:
    return COMPOSE["services"]["agent"]["command"]


def test_ports_are_those_of_the_daemon():
    exposed = re.search(r"^EXPOSE (.*)$", sections()["daemon"], re.MULTILINE)
    assert exposed is not None
    fields = DaemonSettings.model_fields
    assert exposed[1].split() == [str(fields["port"].default), str(fields["agents_port"].default)]
    assert COMPOSE["services"]["daemon"]["ports"] == [f"127.0.0.1:${{JCT_PORT:-7740}}:{fields['port'].default}"]
    assert f"--connect=tcp://daemon:{fields['agents_port'].default}" in agent_command()


def test_services_build_targets_mount_files_and_use_volumes_that_exist():
    for service in COMPOSE["services"].values():
        if build := service.get("build"):
            assert (ROOT / "docker" / build["context"] / build["dockerfile"]).is_file()
            assert build["target"] in sections()
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (ROOT / "docker" / source).is_file()
            elif not source.startswith("$"):
                assert source in COMPOSE["volumes"]
        for other in service.get("depends_on", {}):
            assert other in COMPOSE["services"]


def test_every_variable_is_in_the_example():
    named = set(re.findall(r"\$\{(\w+)", (ROOT / "docker" / "compose.yaml").read_text()))
    lines = (ROOT / "docker" / ".env.example").read_text().splitlines()
    assert named == {line.partition("=")[0] for line in lines if line and not line.startswith("#")}


@pytest.mark.parametrize("variable", ["JCT_DATABASE_URL"])
def test_the_daemons_variables_are_its_settings(variable):
    assert variable in COMPOSE["services"]["daemon"]["environment"]
    assert variable in {str(field.validation_alias) for field in DaemonSettings.model_fields.values()}


def test_keys_go_where_the_services_look_for_them():
    script = (ROOT / "docker" / "keys.py").read_text()
    folders = re.findall(r'Path\("(/[^"]+)"\)', script)
    mounts = {volume.split(":")[1] for volume in COMPOSE["services"]["keys"]["volumes"]}
    assert set(folders) <= mounts
    assert f"--server-key={folders[1]}/daemon.key" in agent_command()
    compile(script, "keys.py", "exec")
