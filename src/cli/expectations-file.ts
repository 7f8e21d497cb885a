import { JsonError } from '../../attestation/json/json-error.ts'
import { parseExactJson } from '../../attestation/json/parse-strict.ts'
import { isJsonObject, type JsonObject } from '../../attestation/json/value.ts'
import { printable } from '../../attestation/report/printable.ts'
import { AffidavitError } from '../../client/errors.ts'
import {
  type Expectations,
  type ExpectedPolicy,
  readExpectations,
} from '../../client/expectations.ts'
import { CliError, EXIT_CODES, telling } from './faults.ts'
import { readSource } from './files.ts'

/** Largest file of expectations, bytes: release lists of years are below. */
const EXPECT_BYTES_MAX = 8 * 1024 * 1024

/** What a file of expectations holds: what `connect` of the client takes, roots beside it. */
type ExpectationsFile = {
  readonly expect: Expectations
  readonly roots: readonly string[] | undefined
}

/**
 * Reads a file of expectations (JSON), whose members `readExpectations` checks one by one. Throws
 * CliError.
 */
export async function openExpectations(file: string): Promise<ExpectationsFile> {
  const bytes = await readSource(file, { bytesMax: EXPECT_BYTES_MAX })
  const { roots, ...expect } = parseObject(bytes, file)
  return { expect: expect as Expectations, roots: roots as readonly string[] | undefined }
}

/** The policy that a file of expectations says. Throws CliError. */
export async function readExpectedPolicy(
  file: string,
  { allowDebug }: { readonly allowDebug: boolean },
): Promise<ExpectedPolicy> {
  const { expect, roots } = await openExpectations(file)
  return readPolicy({ expect, roots, allowDebug }, file)
}

/** Throws CliError, which names `what`, for a file of expectations that would not be taken. */
export function checkExpectations(
  { roots, ...expect }: Expectations & { readonly roots?: readonly string[] },
  what: string,
): void {
  readPolicy({ expect, roots, allowDebug: false }, what)
}

function readPolicy(
  { expect, roots, allowDebug }: ExpectationsFile & { readonly allowDebug: boolean },
  what: string,
): ExpectedPolicy {
  try {
    return readExpectations(expect, { roots, allowDebug })
  } catch (fault) {
    if (!(fault instanceof AffidavitError)) throw fault
    throw new CliError(`${printable(what)}: ${printable(fault.message)}`, EXIT_CODES.usage)
  }
}

function parseObject(bytes: Uint8Array, file: string): JsonObject {
  const expected = `expected ${printable(file)} to be a JSON object of expectations`
  const json = telling(
    () => parseExactJson(bytes),
    JsonError,
    ({ message }) => new CliError(`${expected}: ${message}`, EXIT_CODES.usage),
  )
  if (!isJsonObject(json)) throw new CliError(expected, EXIT_CODES.usage)
  return json
}
