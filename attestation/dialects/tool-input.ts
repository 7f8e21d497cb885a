import { encodeUtf8 } from '../bytes.ts'
import { JsonError } from '../json/json-error.ts'
import { parseStrictJson } from '../json/parse-strict.ts'
import { isJsonObject, type JsonObject } from '../json/value.ts'
import { refuse } from './dialect.ts'

/** Gets the text of a tool's input before a StreamReader parses it. Throws to refuse the input. */
export type OnToolInput = (text: string) => void

/**
 * Parses the text of a tool's input, a JSON object. Throws FormatError `invalid_tool_input` for any
 * other text: readers would show different tool calls.
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
