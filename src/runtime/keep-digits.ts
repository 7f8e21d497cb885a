import type { Json } from '#attestation/json/value.ts'

/** A number of so many digits may be one that a double cannot hold. */
const LONG_NUMBER = /\d{16}/

/**
 * Parses JSON that is passed on and written again. An integer beyond ±(2^53-1) keeps its digits: it
 * becomes a value of JSON.rawJSON, which JSON.stringify writes as it was. Throws SyntaxError.
 */
export function parseKeepingDigits(text: string): Json {
  return LONG_NUMBER.test(text) ? JSON.parse(text, keepDigits as Reviver) : JSON.parse(text)
}

type Reviver = (name: string, value: unknown) => unknown

function keepDigits(_: string, value: unknown, { source }: { readonly source?: string }): unknown {
  const isLong =
    typeof value === 'number' && Number.isInteger(value) && !Number.isSafeInteger(value)
  return isLong && source !== undefined && /^-?\d+$/.test(source) ? rawJson(source) : value
}

/** TypeScript does not know this function and the third parameter of a reviver yet. */
const { rawJSON: rawJson } = JSON as unknown as { readonly rawJSON: (text: string) => unknown }
