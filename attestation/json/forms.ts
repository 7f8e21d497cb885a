import { FormatError } from '../errors.ts'
import {
  hasExactMembers,
  isCount,
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
} from './value.ts'

/** The required form of a text. `expectation` describes the form for the message. */
type TextForm = { readonly form: RegExp; readonly expectation: string }

/** A form whose description is the regular expression itself. */
export function formOf(form: RegExp): TextForm {
  return { form, expectation: `of the form ${form.source}` }
}

const ANY_TEXT: TextForm = { form: /(?:)/, expectation: 'a string' }

/**
 * Readers for the parts of attacker-controlled JSON. Each reader returns the value if it has the
 * required form. Otherwise it throws FormatError `code`: the message begins with `prefix`, calls
 * the value `name`, and says what was expected.
 */
export function formsOf(code: string, prefix = '') {
  const invalid = (name: string, expectation: string): FormatError =>
    new FormatError(code, `${prefix}expected ${name} to be ${expectation}`)

  return {
    invalid,

    /** An object that has exactly the members `names`. */
    membersOf<Name extends string>(
      json: Json | undefined,
      name: string,
      names: readonly Name[],
    ): Readonly<Record<Name, Json>> {
      if (!isJsonObject(json) || !hasExactMembers(json, names))
        throw invalid(name, `an object of ${names.join(', ')}`)
      return json
    },

    objectOf(json: Json | undefined, name: string): JsonObject {
      if (!isJsonObject(json)) throw invalid(name, 'an object')
      return json
    },

    arrayOf(
      json: Json | undefined,
      name: string,
      bounds?: { readonly min: number; readonly max: number },
      items = '',
    ): readonly Json[] {
      const { min, max } = bounds ?? { min: 0, max: Number.POSITIVE_INFINITY }
      if (isJsonArray(json) && json.length >= min && json.length <= max) return json
      throw invalid(name, `an array${bounds === undefined ? '' : ` of ${min} to ${max}${items}`}`)
    },

    countOf(json: Json | undefined, name: string): number {
      if (!isCount(json)) throw invalid(name, 'a whole number from 0 to 2^53-1')
      return json
    },

    /** Without a form, any text is accepted. */
    textOf(
      json: Json | undefined,
      name: string,
      { form, expectation }: TextForm = ANY_TEXT,
    ): string {
      if (typeof json !== 'string' || !form.test(json)) throw invalid(name, expectation)
      return json
    },

    /** Lower-case hex of exactly `bytes` bytes, without prefix. */
    hexOf(json: Json | undefined, name: string, bytes: number): string {
      if (typeof json !== 'string' || json.length !== 2 * bytes || !LOWER_CASE_HEX.test(json))
        throw invalid(name, `${2 * bytes} lower-case hex digits`)
      return json
    },
  }
}

const LOWER_CASE_HEX = /^[0-9a-f]*$/
