import type { Identity } from '#enclave/protocol/enclave-api.ts'
import { ApiError } from '../api/errors.ts'
import type { EnclaveClient } from './enclave-client.ts'
import { EnclaveError, outageErrorOf } from './enclave-errors.ts'
import type { ServedNotary } from './enclave-pool.ts'
import { createFreshShares, type FreshCaller } from './fresh-shares.ts'
import type { AttestationReply } from './notary-replies.ts'
import type { PeerEnclaves } from './peer-enclaves.ts'

export type AttestingEnclave = Pick<EnclaveClient, 'identity' | 'forgetIdentity' | 'attestation'>

type AttestationQuestion = { readonly nonce: string | null; readonly notary: string | null }

/**
 * Throws ApiError `overloaded` for too many nonces from one caller or from all callers, and
 * `not_found` if no enclave has the notary. Also throws the errors of outageErrorOf.
 */
export type Attestations = {
  /**
   * `notary`: 0x, lower case, or null for any enclave in use. `nonce`: hex, for a fresh document,
   * or null for the current document.
   */
  attest(asked: AttestationQuestion, caller: FreshCaller): Promise<AttestationReply>
  /** The notaries whose enclaves answer, with their current documents. */
  list(): readonly ServedNotary[]
}

/**
 * A fresh document needs a signature of the security module, and callers need no API key. So the
 * number of fresh documents is limited (createFreshShares). A request for an unknown notary is not
 * counted. `now` returns milliseconds of a clock that is never set.
 */
export function createAttestations(options: {
  readonly enclaves: {
    find(notary: string | null): Promise<AttestingEnclave | null>
  }
  /** The notaries of the whole service. */
  readonly listNotaries: () => readonly ServedNotary[]
  /** Null if the gateway has no bus. */
  readonly peers?: Pick<PeerEnclaves, 'holds' | 'attest' | 'serveAttestations'> | null
  readonly now: () => number
}): Attestations {
  const { enclaves, listNotaries, peers = null, now } = options
  const takeShare = createFreshShares(now)

  function admit(nonce: string | null, caller: FreshCaller): void {
    if (nonce !== null && !takeShare(caller))
      throw new ApiError(
        'overloaded',
        'Too many requests for new attestations at once, try again in a moment',
      )
  }

  /** Null if no enclave of this gateway has the notary. */
  async function attestHere(
    { nonce, notary }: AttestationQuestion,
    caller: FreshCaller,
  ): Promise<AttestationReply | null> {
    try {
      const enclave = await enclaves.find(notary)
      if (enclave === null) return null
      admit(nonce, caller)
      const reply =
        nonce === null ? describe(await enclave.identity()) : await attestFresh(enclave, nonce)
      if (notary !== null && reply.notary !== notary) throw unknownNotary()
      return reply
    } catch (error) {
      throw error instanceof EnclaveError ? outageErrorOf(error) : error
    }
  }

  peers?.serveAttestations(async (nonce, notary, isKnown) => {
    const reply = await attestHere({ nonce, notary }, { group: null, isKnown })
    if (reply === null) throw unknownNotary()
    return reply
  })
  return {
    async attest(asked, caller) {
      const { nonce, notary } = asked
      const here = await attestHere(asked, caller)
      if (here !== null) return here
      if (notary === null || !peers?.holds(notary)) throw unknownNotary()
      admit(nonce, caller)
      const reply = await peers.attest(nonce, notary, caller.isKnown)
      if (reply === null) throw unknownNotary()
      return reply
    },
    list: listNotaries,
  }
}

async function attestFresh(enclave: AttestingEnclave, nonce: string): Promise<AttestationReply> {
  let before = await enclave.identity()
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const attestation = await enclave.attestation(nonce)
    enclave.forgetIdentity()
    const after = await enclave.identity()
    // If the notary has changed, the document may belong to the key of the replaced enclave.
    if (after.notary === before.notary) return { ...describe(after), attestation }
    before = after
  }
  throw new EnclaveError('unavailable', 'the enclave was replaced again and again')
}

const ATTEMPTS = 3

function unknownNotary(): ApiError {
  return new ApiError('not_found', 'No enclave in use has this notary')
}

function describe({
  attestation,
  public_key,
  notary,
  boot_configuration,
}: Identity): AttestationReply {
  return { attestation, public_key, notary, boot_configuration }
}
