import { Command, CommanderError, Help, type Option } from 'commander'
import { printable } from '#attestation/report/printable.ts'
import { ConfigurationError } from '../runtime/read-settings.ts'
import { VERSION } from '../runtime/version.ts'
import { addExamples } from './examples.ts'
import { CliError, EXIT_CODES } from './faults.ts'

/** The help shows the keys as headings. Each function adds its command. */
export type CommandGroups = Readonly<Record<string, readonly ((program: Command) => void)[]>>

type Scope = {
  readonly name: string
  readonly description: string
  readonly commands: CommandGroups
}

/**
 * The checkout's program (program.ts) has all commands. The packages (packages/) have only the
 * commands of their users, so the packages load no other code.
 */
export function createCommandLine({ name, description, commands }: Scope): Command {
  const program = new Command(name)
    .description(description)
    .version(VERSION, '--version', 'print the version')
    .helpCommand(false)
    .showHelpAfterError('(see --help)')
    .configureHelp({ optionDescription: describeOption })
    .addHelpText(
      'after',
      '\nExit codes: 0 done, 1 the command or a check failed, 2 wrong usage, 3 not decided: a ' +
        'file or service cannot be reached (a command can differ: see its help).',
    )
  for (const [heading, group] of Object.entries(commands)) {
    program.commandsGroup(heading)
    for (const register of group) register(program)
  }
  registerHelp(program)
  addExamples(program)
  return program
}

/** Commander itself lists a required option like any other. */
function describeOption(option: Option): string {
  const text = new Help().optionDescription(option)
  return option.mandatory ? `${text} (required)` : text
}

/** `help` accepts a command name with several words, such as `keys create`. */
function registerHelp(program: Command): void {
  program
    .command('help')
    .description('show the help of a command')
    .argument('[command...]', 'its words, such as: keys create')
    .action((words: readonly string[]) => {
      const command = words.reduce<Command>((above, word) => {
        const below = above.commands.find((one) => one.name() === word)
        if (below !== undefined) return below
        throw new CliError(
          `there is no command ${printable(words.join(' '))}: ${program.name()} help lists them`,
          EXIT_CODES.usage,
        )
      }, program)
      command.outputHelp()
    })
}

/** Sets the exit code (EXIT_CODES). Rejects only for an unexpected fault. */
export async function runCommandLine(program: Command): Promise<void> {
  for (const stream of [process.stdout, process.stderr]) stream.on('error', passBrokenPipe)
  throwAtExit(program)
  try {
    await program.parseAsync()
  } catch (fault) {
    process.exitCode = report(program, fault)
  }
}

/**
 * The reader may close the output early (`| head`). The command continues, because its exit code is
 * a verdict.
 */
function passBrokenPipe(fault: NodeJS.ErrnoException): void {
  if (fault.code !== 'EPIPE') throw fault
}

/**
 * Makes commander throw, because commander would otherwise end the process with other exit codes
 * and cut the output.
 */
function throwAtExit(command: Command): void {
  command.exitOverride()
  for (const child of command.commands) throwAtExit(child)
}

function report(program: Command, fault: unknown): number {
  if (fault instanceof CommanderError)
    return fault.exitCode === 0 ? EXIT_CODES.done : EXIT_CODES.usage
  if (fault instanceof CliError) {
    console.error(`${program.name()}: ${fault.message}`)
    return fault.exitCode
  }
  if (fault instanceof ConfigurationError) {
    console.error(fault.message)
    return EXIT_CODES.usage
  }
  throw fault
}
