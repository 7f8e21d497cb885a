import { execFile } from 'node:child_process'
import { BuildError } from './build-error.ts'

/** Limit for a command's output, bytes. The largest output is the unpacked kernel package. */
const COMMAND_OUTPUT_BYTES_MAX = 2 ** 30

/** A command of the operating system, run without a shell. */
type Command = {
  readonly file: string
  readonly arguments: readonly string[]
  readonly folder?: string
  /** All environment variables of the command. Default: the variables of this process. */
  readonly environment?: Readonly<Record<string, string>>
}

/**
 * Runs a command to its end and returns its output. Throws BuildError `missing_tool` if the program
 * does not exist, and `command_failed` with the end of its error output.
 */
export function runCommand(command: Command): Promise<Buffer> {
  const options = {
    cwd: command.folder,
    env: command.environment,
    encoding: 'buffer',
    maxBuffer: COMMAND_OUTPUT_BYTES_MAX,
  } as const
  return new Promise((resolve, reject) => {
    execFile(command.file, command.arguments, options, (error, output, complaint) => {
      if (error === null) resolve(output)
      else if (error.code === 'ENOENT') reject(missingTool(command.file))
      else {
        // Some compilers write their errors to standard output.
        const words = lastWords(complaint) || lastWords(output) || 'failed without a word'
        reject(new BuildError('command_failed', `${describe(command)}: ${words}`))
      }
    })
  })
}

const WORDS_MAX = 600

function missingTool(file: string): BuildError {
  return new BuildError(
    'missing_tool',
    `${file} is not installed here; the builder needs git, npm and dpkg-deb, ` +
      'and apt-get unless --packages is given (Debian, or a Debian container)',
  )
}

function describe({ file, arguments: words }: Command): string {
  return [file, ...words].join(' ')
}

function lastWords(complaint: Buffer): string {
  return complaint.toString('utf8').trim().slice(-WORDS_MAX)
}
