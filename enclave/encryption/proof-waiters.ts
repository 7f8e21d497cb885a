import type { AnchorProof } from '../protocol/enclave-api.ts'

/** A sealed call waits this long for its commit, milliseconds. The gateway waits 60 s. */
export const PROOF_TIMEOUT_MS = 65_000

/** The result of the wait. `late`: PROOF_TIMEOUT_MS has ended. `gone`: the caller has left. */
type Proof = AnchorProof | 'late' | 'gone'

/** Sealed calls that wait for the gateway's part of their proof. */
export type ProofWaiters = {
  open(call: string): Promise<Proof>
  /** Passes the proof to the call that waits for it. Returns false if the call does not wait. */
  give(proof: AnchorProof): boolean
  /** Ends the wait with `gone`. */
  forget(call: string): void
}

export function createProofWaiters(timeoutMs: number = PROOF_TIMEOUT_MS): ProofWaiters {
  const waiting = new Map<string, (proof: Proof) => void>()

  function end(call: string, proof: Proof): boolean {
    waiting.get(call)?.(proof)
    return waiting.delete(call)
  }

  return {
    open: (call) =>
      new Promise((resolve) => {
        const timer = setTimeout(() => end(call, 'late'), timeoutMs)
        waiting.set(call, (given) => {
          clearTimeout(timer)
          resolve(given)
        })
      }),
    give: (proof) => end(proof.call, proof),
    forget: (call) => void end(call, 'gone'),
  }
}
