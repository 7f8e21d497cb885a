import type { Identity } from '../../enclave/protocol/messages.ts'
import type { EnclaveClient } from './enclave-client.ts'
import { EnclaveError } from './enclave-error.ts'
import type { Seat } from './seat.ts'

/** An enclave, as who asks it for attestation documents sees it. */
export type AttestingEnclave = Pick<EnclaveClient, 'identity' | 'forgetIdentity' | 'attestation'>

/** A notary whose enclave answers, with its current attestation document. */
export type ServedNotary = Pick<Identity, 'notary' | 'public_key' | 'attestation' | 'boot_configuration'> & {
  /** `draining`: it gets no new calls; its last completions are on their way into its log. */
  readonly status: 'in_use' | 'draining'
}

/** The enclave of a notary whose log is, or was, followed here; null when there is none. */
export function findAttesting(seats: readonly Seat[], notary: string): AttestingEnclave | null {
  const seat = seats.find(({ state }) => state.notary === notary && state.isFollowed)
  return seat?.attesting() ?? null
}

/**
 * The current attestation document, standard base64, of the first of these enclaves that answers, asked for anew. Throws
 * EnclaveError when none does.
 */
export async function fetchDocument(seats: readonly Seat[]): Promise<string> {
  const documents = seats.map(async (seat) => {
    const enclave = seat.attesting()
    enclave.forgetIdentity()
    return (await enclave.identity()).attestation
  })
  try {
    return await Promise.any(documents)
  } catch {
    throw new EnclaveError('unavailable', 'no enclave in use says who it is')
  }
}

/** The notaries of all enclaves that are in use or being drained, as they were at the last look. */
export function servedNotaries(seats: readonly Seat[]): readonly ServedNotary[] {
  return seats.flatMap(({ phase, identity }) => {
    if (identity === null || !isServed(phase)) return []
    const { notary, public_key, attestation, boot_configuration } = identity
    const status = phase === 'usable' ? 'in_use' : 'draining'
    return [{ notary, public_key, status, attestation, boot_configuration } as const]
  })
}

function isServed(phase: Seat['phase']): boolean {
  return phase === 'usable' || phase === 'draining'
}
