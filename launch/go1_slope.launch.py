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


def on_bridge_exit(event, context):
    if event.returncode != 0 and not context.is_shutdown:
        # The launch itself fails: without a robot there is nothing left to do.
        raise RuntimeError(f"the bridge died with exit code {event.returncode}")
    return Shutdown(reason="the bridge ended")


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

    again = {"respawn": True, "respawn_delay": 1.0, "respawn_max_retries": 3}
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
    nodes = [
        bridge,
        node("encoder", {**modelled, **in_step}, **again),
        node("planner", {**modelled, **in_step, "mppi.seed": settings.seed}, **again),
        node("replay", {**robot, "record": settings.record, "bag_dir": settings.bag_dir}, **again),
        operator,
    ]
    if settings.adapt:
        nodes.append(node("finetune", modelled, **again))
    return [
        RegisterEventHandler(OnProcessExit(target_action=bridge, on_exit=on_bridge_exit)),
        RegisterEventHandler(
            OnProcessExit(target_action=operator, on_exit=[Shutdown(reason="the operator is done")])
        ),
        *nodes,
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
