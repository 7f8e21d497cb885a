import { resolve } from 'node:path'
import type { z } from 'zod'
import { form, textField } from '../runtime/fields.ts'
import type { Environment } from '../runtime/read-settings.ts'
import type { ContentKeySource } from './content-keys.ts'

/** Longest that content can be kept by a rule, days: a hundred years. */
export const RETENTION_DAYS_MAX = 36_500

/** Variables of the keys of stored content; part of the gateway's settings and the operator's. */
export const CONTENT_KEY_FIELDS = {
  /**
   * File with the keys that requests and answers are encrypted under in the database: 32 bytes
   * each, hex or base64, one a line; the last one encrypts, all decrypt. Users other than the
   * file's owner and group must not have access. Default: none, and they are stored in the clear.
   * Once content was encrypted, a gateway without keys does not start (src/storage/README.md).
   */
  CONTENT_KEY_FILE: textField.optional(),
  /**
   * Program that prints these keys instead, with its arguments, blanks between them: a client of a
   * key service. Run once at each start, without a shell; it has 10 s.
   */
  CONTENT_KEY_COMMAND: form(
    /^\/\S{0,1000}( +\S{1,1000}){0,32}$/,
    'the absolute path of a program and its arguments, with blanks between them',
  ).optional(),
}

type KeySettings = z.output<z.ZodObject<typeof CONTENT_KEY_FIELDS>>

/** What is wrong with the variables together. */
export function contentFaults(given: Environment): readonly string[] {
  return given.CONTENT_KEY_FILE !== undefined && given.CONTENT_KEY_COMMAND !== undefined
    ? ['CONTENT_KEY_COMMAND: expected only without CONTENT_KEY_FILE']
    : []
}

/** Where the keys of stored content are; null for content in the clear. */
export function contentKeysOf(settings: KeySettings): ContentKeySource | null {
  const { CONTENT_KEY_FILE: file, CONTENT_KEY_COMMAND: command } = settings
  if (file !== undefined) return { file: resolve(file) }
  if (command === undefined) return null
  const [program = '', ...args] = command.split(/ +/)
  return { command: [program, ...args] }
}
