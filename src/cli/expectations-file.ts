import type { BundlePolicy } from '#attestation/evidence/policy.ts'
import { JsonError } from '#attestation/json/json-error.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { isJsonObject } from '#attestation/json/value.ts'
import {
  ExpectationsError,
  type ExpectationsFile,
  readExpectationsFile,
} from '#attestation/report/expectations.ts'
import { printable } from '#attestation/report/printable.ts'
import { CliError, convertFault, EXIT_CODES } from './faults.ts'
import { readSource, refuseUrl } from './files.ts'

/** Bytes. The release lists of many years fit. */
const EXPECT_BYTES_MAX = 8 * 1024 * 1024

/**
 * Reads a JSON object. readExpectationsFile checks its members. Throws CliError, also for a URL.
 */
export async function openExpectations(file: string): Promise<ExpectationsFile> {
  refuseUrl(file, '--expect: expected a file')
  const bytes = await readSource(file, { bytesMax: EXPECT_BYTES_MAX })
  const expected = `expected ${printable(file)} to be a JSON object of expectations`
  const json = convertFault(
    () => parseExactJson(bytes),
    JsonError,
    ({ message }) => new CliError(`${expected}: ${message}`, EXIT_CODES.usage),
  )
  if (!isJsonObject(json)) throw new CliError(expected, EXIT_CODES.usage)
  return json as ExpectationsFile
}

/** Throws CliError, whose message begins with `from`. */
export function readExpectedPolicy(
  expectations: ExpectationsFile,
  from: string,
  options: { readonly allowDebug?: boolean } = {},
): BundlePolicy {
  return convertFault(
    () => readExpectationsFile(expectations, options),
    ExpectationsError,
    ({ message }) => new CliError(`${printable(from)}: ${printable(message)}`, EXIT_CODES.usage),
  )
}
