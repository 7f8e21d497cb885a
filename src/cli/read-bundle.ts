import { FormatError } from '../../attestation/errors.ts'
import { type EvidenceBundle, parseEvidenceBundle } from '../../attestation/evidence/bundle.ts'
import { JsonError } from '../../attestation/json/json-error.ts'
import { parseExactJson } from '../../attestation/json/parse-strict.ts'
import { CliError } from './exit-codes.ts'

/**
 * Gives the evidence bundle in attacker-controlled `bytes`. Throws CliError for what is none; `what` names the source.
 *
 * Does NOT prove anything: see verifyBundle.
 */
export function readBundle(bytes: Uint8Array, what: string): EvidenceBundle {
  try {
    return parseEvidenceBundle(parseExactJson(bytes))
  } catch (fault) {
    if (fault instanceof JsonError || fault instanceof FormatError)
      throw new CliError(`expected ${what} to be an evidence bundle: ${fault.message}`)
    throw fault
  }
}
