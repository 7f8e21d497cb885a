import { resolve } from 'node:path'
import type { z } from 'zod'
import { form, textField } from '../runtime/fields.ts'
import type { Environment } from '../runtime/read-settings.ts'
import type { ContentKeySource } from './content-keys.ts'

/** About a hundred years. */
export const RETENTION_DAYS_MAX = 36_500

/** Part of the settings of the gateway and of the operator's commands. */
export const CONTENT_KEY_FIELDS = {
  /**
   * File with the keys that encrypt requests and answers in the database: 32 bytes each, hex or
   * base64, one per line. The last key encrypts; all keys decrypt. Only the file's owner and group
   * may have access. Default: no keys; requests and answers are stored unencrypted. When the
   * database has encrypted content, a gateway without keys does not start (src/storage/README.md).
   */
  CONTENT_KEY_FILE: textField.optional(),
  /**
   * Program that prints the keys of CONTENT_KEY_FILE, such as a client of a key service; used
   * instead of the file. The program's arguments follow, separated by blanks. The program runs once
   * at each start, without a shell, for at most 10 s.
   */
  CONTENT_KEY_COMMAND: form(
    /^\/\S{0,1000}( +\S{1,1000}){0,32}$/,
    'the absolute path of a program and its arguments, with blanks between them',
  ).optional(),
}

type KeySettings = z.output<z.ZodObject<typeof CONTENT_KEY_FIELDS>>

export function contentFaults(given: Environment): readonly string[] {
  return given.CONTENT_KEY_FILE !== undefined && given.CONTENT_KEY_COMMAND !== undefined
    ? ['CONTENT_KEY_COMMAND: expected only without CONTENT_KEY_FILE']
    : []
}

export function contentKeysOf(settings: KeySettings): ContentKeySource | null {
  const { CONTENT_KEY_FILE: file, CONTENT_KEY_COMMAND: command } = settings
  if (file !== undefined) return { file: resolve(file) }
  if (command === undefined) return null
  const [program = '', ...args] = command.split(/ +/)
  return { command: [program, ...args] }
}
