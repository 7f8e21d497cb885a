import { encodeUtf8 } from '../bytes.ts'
import { JsonError } from '../json/json-error.ts'
import { parseStrictJson } from '../json/parse-strict.ts'
import { isJsonObject, type JsonObject } from '../json/value.ts'
import { refuse } from './dialect.ts'

/**
 * Parses the text of a tool's input, a JSON object. Refuses any other text. Some readers take such
 * a text for an empty object, some repair it, others fail, so they would show different tool calls.
 * Throws FormatError `invalid_tool_input`.
 */
export function parseToolInput(text: string): JsonObject {
  try {
    const input = parseStrictJson(encodeUtf8(text))
    if (isJsonObject(input)) return input
  } catch (error) {
    if (!(error instanceof JsonError)) throw error
  }
  throw refuse('invalid_tool_input', 'expected the input of a tool to be a JSON object')
}
