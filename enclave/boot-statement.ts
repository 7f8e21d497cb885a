import { FormatError, ProofError } from '#attestation/errors.ts'
import {
  type BootHead,
  bootStatementUserData,
  parseBootHeads,
  verifyBootHeads,
} from '#attestation/evidence/boot-statement.ts'
import { parseStrictJson } from '#attestation/json/parse-strict.ts'
import { hasExactMembers, isJsonObject } from '#attestation/json/value.ts'
import type { LogDomain } from '#attestation/tree-head.ts'
import type { AttestationKeeper } from './attestation-keeper.ts'
import { CallFault } from './call-fault.ts'
import type { BootStatementReply } from './protocol/enclave-api.ts'
import { recoverPoint } from './protocol/recover-point.ts'

/** Size limit of a request, bytes. A request has up to 1,000 heads of up to 320 bytes of JSON. */
export const BOOT_STATEMENT_BYTES_MAX = 512 * 1024

/** Keeps the enclave's statement about earlier logs, made before the enclave's log has a leaf. */
export type BootStatementKeeper = {
  /**
   * States the heads in a request's body, once, while the log is empty. Every later request
   * receives this first statement, even with other heads. Throws CallFault `invalid_call`,
   * `log_conflict` when the log had leaves before the first request, and the errors of
   * attestStatement.
   */
  state(body: Uint8Array): Promise<BootStatementReply>
}

export function keepBootStatement(given: {
  readonly notary: string
  readonly domain: LogDomain
  /** Digest of the boot configuration. */
  readonly configuration: Uint8Array
  readonly log: { readonly size: number }
  readonly attestation: Pick<AttestationKeeper, 'attestStatement'>
}): BootStatementKeeper {
  const { notary, domain, configuration, log, attestation } = given
  let first: Promise<BootStatementReply> | null = null

  async function make(heads: readonly BootHead[]): Promise<BootStatementReply> {
    const userData = bootStatementUserData({ configuration, notary, heads })
    return { heads, document: await attestation.attestStatement({ userData, nonce: null }) }
  }

  return {
    async state(body) {
      if (first !== null) return first
      if (log.size > 0)
        throw new CallFault('log_conflict', 'The log has leaves: it is too late for this.')
      const made = make(decodeHeads(body, domain))
      first = made
      // The security module failed, so no statement exists yet.
      made.catch(() => {
        first = null
      })
      return made
    },
  }
}

function decodeHeads(body: Uint8Array, domain: LogDomain): readonly BootHead[] {
  try {
    const value = parseStrictJson(body)
    if (!isJsonObject(value) || !hasExactMembers(value, ['heads']))
      throw new CallFault('invalid_call', 'expected heads alone')
    const heads = parseBootHeads(value.heads)
    verifyBootHeads(heads, domain, recoverPoint)
    return heads
  } catch (fault) {
    if (fault instanceof FormatError || fault instanceof ProofError)
      throw new CallFault('invalid_call', fault.message)
    throw fault
  }
}
