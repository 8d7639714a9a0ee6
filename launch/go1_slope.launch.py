"""A Go1 walks up a slope by planning in a learned model, and relearns the model's dynamics."""

from launch import LaunchDescription
from launch.actions import (
    DeclareLaunchArgument,
    OpaqueFunction,
    RegisterEventHandler,
    SetEnvironmentVariable,
    Shutdown,
)
from launch.event_handlers import OnProcessExit
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from simdist import launch_arguments, paths

#: Exit status of a node after an error that starting it again would only repeat.
REFUSED = 1

# An interpreter that is interrupted while it starts prints a traceback. The nodes let the signal
# through as soon as they can end cleanly.
START_UNDISTURBED = "env --block-signal=INT,TERM"


def declare(argument):
    choices = list(argument.choices) or None
    return DeclareLaunchArgument(
        argument.name,
        default_value=argument.default,
        description=argument.text,
        choices=choices,
    )


#: Times that a node which crashed is started again.
RETRIES = 3


def end_of(name, retries):
    """What to do when a node has ended: go on while it is started again, else fail the launch."""
    ends = []

    def on_exit(event, context):
        ends.append(event.returncode)
        if context.is_shutdown:
            return None
        if event.returncode == REFUSED or len(ends) > retries:
            # An exception makes the launch itself fail: nothing works without this node.
            raise RuntimeError(f"{name} ended with exit code {event.returncode}, see above")
        return None

    return on_exit


def graph(context):
    names = [argument.name for argument in launch_arguments.ARGUMENTS]
    given = {name: LaunchConfiguration(name).perform(context) for name in names}
    settings = launch_arguments.check(given)
    parameters_file = str(paths.config_dir() / "nodes.yaml")

    def node(executable, parameters, **options):
        return Node(
            package="simdist",
            executable=executable,
            name=executable,
            namespace=settings.namespace,
            parameters=[parameters_file, parameters],
            prefix=START_UNDISTURBED,
            output="screen",
            **options,
        )

    again = {"respawn": True, "respawn_delay": 1.0, "respawn_max_retries": RETRIES}
    robot = {"robot": settings.robot}
    modelled = {**robot, "model": settings.model}
    in_step = {"lockstep": settings.lockstep}
    bridge = node(
        "mujoco_bridge",
        {
            **robot,
            **in_step,
            "world": settings.world,
            "seed": settings.seed,
            "headless": settings.headless,
        },
    )
    operator = node(
        "operator",
        {
            **robot,
            **in_step,
            "command_vx": settings.command_vx,
            "duration": settings.duration,
            "course_length": settings.course_length,
            "auto_reset": True,
            "summary": settings.summary,
        },
    )
    others = {
        "encoder": node("encoder", {**modelled, **in_step}, **again),
        "planner": node("planner", {**modelled, **in_step, "mppi.seed": settings.seed}, **again),
        "replay": node(
            "replay", {**robot, "record": settings.record, "bag_dir": settings.bag_dir}, **again
        ),
    }
    if settings.adapt:
        others["finetune"] = node("finetune", modelled, **again)
    handlers = [
        OnProcessExit(target_action=bridge, on_exit=end_of("the bridge", retries=0)),
        *(
            OnProcessExit(target_action=action, on_exit=end_of(name, RETRIES))
            for name, action in others.items()
        ),
        OnProcessExit(target_action=operator, on_exit=[Shutdown(reason="the operator is done")]),
    ]
    return [
        *(RegisterEventHandler(handler) for handler in handlers),
        bridge,
        *others.values(),
        operator,
    ]


def generate_launch_description():
    return LaunchDescription(
        [
            *(declare(argument) for argument in launch_arguments.ARGUMENTS),
            # One thread each, and none that waits busily: six processes share the cores.
            SetEnvironmentVariable("OMP_NUM_THREADS", "1"),
            SetEnvironmentVariable("OMP_WAIT_POLICY", "PASSIVE"),
            OpaqueFunction(function=graph),
        ]
    )
