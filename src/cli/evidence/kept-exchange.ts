import { type KeptFiles, readKeptFiles } from '#attestation/report/read-evidence.ts'
import {
  linesOf,
  type ShownExchange,
  type ShownMessage,
} from '#attestation/report/shown-exchange.ts'
import { CliError, EXIT_CODES } from '../faults.ts'
import { readSource } from '../files.ts'
import { withEvidenceErrors } from './read-evidence.ts'

export type KeptOptions = {
  readonly request?: string
  readonly answer?: string
  readonly idempotent?: boolean
}

/**
 * Throws CliError if a file cannot be read or has the wrong form, or if the files and `source` name
 * standard input more than once.
 */
export async function openKeptFiles(
  source: string,
  { request, answer, idempotent = false }: KeptOptions,
): Promise<KeptFiles> {
  if ([source, request, answer].filter((place) => place === '-').length > 1)
    throw new CliError('expected standard input (-) only once', EXIT_CODES.usage)
  const files = {
    request: request === undefined ? null : await readSource(request),
    answer: answer === undefined ? null : await readSource(answer),
    idempotent,
  }
  return withEvidenceErrors(() => readKeptFiles(files))
}

/** Writes a bar before each line, so that a message cannot look like a part of the report. */
export function printExchange({ asked, said }: ShownExchange, whose = ''): string {
  const part = (title: string, messages: readonly ShownMessage[] | null) =>
    messages === null ? '' : `${title}\n${messages.map(printMessage).join('')}`
  return `${part(`asked${whose}`, asked)}${part(`said${whose}`, said)}`
}

const WHO_WIDTH = 12

export function printMessage(message: ShownMessage): string {
  const { who, lines } = linesOf(message)
  const margin = ' '.repeat(WHO_WIDTH)
  return lines
    .map((line, at) => `  ${at === 0 ? who.padEnd(WHO_WIDTH) : margin} | ${line}\n`)
    .join('')
}
