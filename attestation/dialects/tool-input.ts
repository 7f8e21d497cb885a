import { encodeUtf8 } from '../bytes.ts'
import { JsonError } from '../json/json-error.ts'
import { parseAnyNumbers, parseStrictJson } from '../json/parse-strict.ts'
import { isJsonObject, type JsonObject } from '../json/value.ts'
import { orNull } from '../or-null.ts'
import { refuse } from './dialect.ts'

/** Gets the text of a tool's input before a StreamReader parses it. Throws to refuse the input. */
export type OnToolInput = (text: string) => void

/**
 * Reads the text of a tool's input. Returns `cut` for a text that is not JSON, since the limit of
 * tokens may have ended it: readers then show the text or nothing. Returns `blank` for a text
 * without a value, `text` for an object with a number that canonical JSON does not keep, otherwise
 * the object. Throws FormatError `invalid_tool_input` for JSON that readers understand differently,
 * or that is not an object.
 */
export function readToolInput(text: string): JsonObject | 'blank' | 'cut' | 'text' {
  if (text.trim() === '') return 'blank'
  const bytes = encodeUtf8(text)
  const strict = orNull(() => [parseStrictJson(bytes)], JsonError)
  if (strict === null && orNull(() => [JSON.parse(text)], SyntaxError) === null) return 'cut'
  const [value = null] = strict ?? orNull(() => [parseAnyNumbers(bytes)], JsonError) ?? []
  if (isJsonObject(value)) return strict === null ? 'text' : value
  throw refuse('invalid_tool_input', 'expected the input of a tool to be a JSON object')
}
