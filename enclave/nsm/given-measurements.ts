import { decodeHex } from '../../attestation/bytes.ts'
import { FormatError } from '../../attestation/errors.ts'
import { parseStrictJson } from '../../attestation/json/parse-strict.ts'
import { isJsonObject } from '../../attestation/json/value.ts'
import type { SourceMeasurements } from './measured-source.ts'

/** Most bytes of such a file: three registers, with white space. */
export const MEASUREMENTS_FILE_BYTES_MAX = 4096

/**
 * Measurements for the software module, as the machine that booted the image states them: a JSON object with exactly the
 * members "0", "1" and "2", each 96 lower-case hex digits. A hypervisor tells the real module the same way.
 * Throws FormatError `invalid_measurements`, or JsonError.
 * Does NOT prove that this image runs: whoever started the machine wrote the file.
 */
export function parseGivenMeasurements(bytes: Uint8Array): SourceMeasurements {
  if (bytes.length > MEASUREMENTS_FILE_BYTES_MAX)
    throw invalid(`expected at most ${MEASUREMENTS_FILE_BYTES_MAX} bytes`)
  const value = parseStrictJson(bytes)
  if (!isJsonObject(value) || Object.keys(value).sort().join() !== '0,1,2')
    throw invalid('expected an object with exactly the members "0", "1" and "2"')
  return {
    pcr0: parseRegister(value['0'], 0),
    pcr1: parseRegister(value['1'], 1),
    pcr2: parseRegister(value['2'], 2),
  }
}

function parseRegister(value: unknown, index: number): Uint8Array {
  if (typeof value !== 'string' || !/^[0-9a-f]{96}$/.test(value))
    throw invalid(`expected "${index}" to be 96 lower-case hex digits`)
  return decodeHex(value)
}

function invalid(message: string): FormatError {
  return new FormatError('invalid_measurements', message)
}
