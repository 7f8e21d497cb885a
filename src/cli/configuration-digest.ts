import { decodeHex } from '../../attestation/bytes.ts'
import { FormatError } from '../../attestation/errors.ts'
import {
  digestBootConfiguration,
  parseBootConfiguration,
} from '../../attestation/evidence/boot-configuration.ts'
import { JsonError } from '../../attestation/json/json-error.ts'
import { parseExactJson } from '../../attestation/json/parse-strict.ts'
import { isJsonObject } from '../../attestation/json/value.ts'
import { CliError, EXIT_CODES } from './exit-codes.ts'
import { printable } from './printable.ts'
import { isUrl, readSource } from './read-source.ts'

/** Largest file of a boot configuration, bytes. */
export const CONFIGURATION_BYTES_MAX = 1024 * 1024

/**
 * Gives the digest (32 bytes) of an expected boot configuration: written as 64 hex digits, or
 * computed from a file that holds the configuration as JSON. A file whose name is 64 hex digits
 * needs `./` before it. Throws CliError for anything else, and for a URL: what a gateway says its
 * configuration is, is no expectation of it.
 */
export async function readConfigurationDigest(text: string): Promise<Uint8Array> {
  if (/^(0x)?[0-9a-fA-F]{64}$/.test(text)) return decodeHex(text)
  if (isUrl(text))
    throw new CliError(
      `--configuration: expected a digest or a file, got a URL: a gateway's own word is no expectation of it`,
      EXIT_CODES.usage,
    )
  const bytes = await readSource(text, {
    apiKey: null,
    stdin: process.stdin,
    bytesMax: CONFIGURATION_BYTES_MAX,
  })
  try {
    const configuration = parseExactJson(bytes)
    parseBootConfiguration(configuration)
    return digestBootConfiguration(isJsonObject(configuration) ? configuration : {})
  } catch (fault) {
    if (!(fault instanceof JsonError) && !(fault instanceof FormatError)) throw fault
    throw new CliError(
      `--configuration ${printable(text)}: expected a boot configuration as JSON: ${fault.message}`,
      EXIT_CODES.usage,
    )
  }
}
