import type { AnchorProof } from '../protocol/messages.ts'

/** How long a sealed call waits for its commit, milliseconds: the gateway gives up after 60 s. */
export const PROOF_TIMEOUT_MS = 65_000

/** What became of a call that waited: `late` after PROOF_TIMEOUT_MS, `gone` with its caller. */
type Proof = AnchorProof | 'late' | 'gone'

/** Sealed calls that wait for what the gateway knows of their proof. */
export type ProofWaiters = {
  /** Opens a new call, and gives what becomes of the call. */
  open(call: string): Promise<Proof>
  /** Ends a call's waiting; false when none of this id waits. */
  give(proof: AnchorProof): boolean
  /** Ends it without a proof. */
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
