import { decodeHex } from '../../../attestation/bytes.ts'
import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '../../../attestation/json/value.ts'
import { GatewayFault } from './gateway-fault.ts'

/** Reads members of one answer, each in its one form. Members that are not asked for are left alone. */
export type AnswerReader = {
  count(object: JsonObject, name: string): number
  countOrNull(object: JsonObject, name: string): number | null
  /** Bytes of hex of this many bytes, lower case, with this prefix (default none). */
  bytes(
    object: JsonObject,
    name: string,
    form: { readonly length: number; readonly prefix?: '0x' },
  ): Uint8Array
  /** Hex as it is written. */
  hex(object: JsonObject, name: string, form: { readonly length: number; readonly prefix?: '0x' }): string
  text(object: JsonObject, name: string): string
  object(object: JsonObject, name: string): JsonObject
  array(object: JsonObject, name: string, lengthMax: number): readonly Json[]
  /** Hashes (32 bytes) of an array of hex without prefix. */
  hashes(object: JsonObject, name: string, lengthMax: number): readonly Uint8Array[]
  /** The object that an entry of an array is. */
  entry(json: Json | undefined, name: string): JsonObject
  /** A fault of this answer. */
  fault(expectation: string): GatewayFault
}

/** Gives a reader for the answer of `where` (path and query). It throws GatewayFault `answer_invalid`. */
export function readAnswer(where: string): AnswerReader {
  const fault = (expectation: string) =>
    new GatewayFault('answer_invalid', { where, message: `expected ${expectation}` })

  const hex: AnswerReader['hex'] = (object, name, { length, prefix = '' }) => {
    const value = memberOf(object, name)
    const isHex =
      typeof value === 'string' &&
      value.length === prefix.length + 2 * length &&
      value.startsWith(prefix) &&
      HEX_DIGITS.test(value.slice(prefix.length))
    if (!isHex) throw fault(`${name} to be ${prefix} and ${length} bytes of lower-case hex`)
    return value
  }

  const count: AnswerReader['count'] = (object, name) => {
    const value = memberOf(object, name)
    if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0)
      throw fault(`${name} to be a whole number from 0 to 2^53-1`)
    return value
  }

  const array: AnswerReader['array'] = (object, name, lengthMax) => {
    const value = memberOf(object, name)
    if (!isJsonArray(value) || value.length > lengthMax)
      throw fault(`${name} to be an array of at most ${lengthMax}`)
    return value
  }

  const entry: AnswerReader['entry'] = (value, name) => {
    if (!isJsonObject(value)) throw fault(`${name} to be an object`)
    return value
  }

  return {
    fault,
    hex,
    count,
    array,
    entry,
    bytes: (object, name, form) => decodeHex(hex(object, name, form)),
    countOrNull: (object, name) => (memberOf(object, name) === null ? null : count(object, name)),
    text: (object, name) => {
      const value = memberOf(object, name)
      if (typeof value !== 'string') throw fault(`${name} to be a string`)
      return value
    },
    object: (object, name) => entry(memberOf(object, name), name),
    hashes: (object, name, lengthMax) =>
      array(object, name, lengthMax).map((value, at) => {
        if (typeof value !== 'string' || !HASH_FORM.test(value))
          throw fault(`${name}.${at} to be 32 bytes of lower-case hex`)
        // Native, for there are millions of them.
        return new Uint8Array(Buffer.from(value, 'hex'))
      }),
  }
}

const HEX_DIGITS = /^[0-9a-f]*$/
const HASH_FORM = /^[0-9a-f]{64}$/
