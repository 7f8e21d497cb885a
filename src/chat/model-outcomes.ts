import { ApiError } from '../api/errors.ts'
import type { VerifiedCall, VerifiedCompletions, VerifiedEvent } from '../verified/verified-completions.ts'

/**
 * Ids that are remembered, of each kind; beyond it the one that was longest not used is forgotten.
 */
const OUTCOMES_MAX = 1_000
/** How long a provider's word that it does not have a model is held against it. */
const MISSING_MS = 10 * 60_000

/**
 * What became of calls with the operator's credentials, by model. Lasts as long as this process.
 */
export type ModelOutcomes = {
  /** A completion of the model was made. */
  noteServed(model: string): void
  /** The provider said 404. */
  noteMissing(model: string): void
  /** Models of which completions were made, and that were not missing since. */
  served(): readonly string[]
  isMissing(model: string): boolean
}

/** A memory of nothing. `now`: milliseconds. */
export function createModelOutcomes(now: () => number): ModelOutcomes {
  const served = new Map<string, number>()
  const missing = new Map<string, number>()
  const isMissing = (model: string) => now() - (missing.get(model) ?? Number.NEGATIVE_INFINITY) < MISSING_MS
  return {
    noteServed(model) {
      missing.delete(model)
      // The list is for everybody, and the name of a fine-tuned model says whose it is.
      if (model.startsWith('ft:')) return
      keepNewest(served, model, now())
    },
    noteMissing(model) {
      served.delete(model)
      keepNewest(missing, model, now())
    },
    served: () => [...served.keys()],
    isMissing,
  }
}

function keepNewest(models: Map<string, number>, model: string, atMs: number): void {
  models.delete(model)
  models.set(model, atMs)
  const [oldest] = models.keys()
  if (models.size > OUTCOMES_MAX && oldest !== undefined) models.delete(oldest)
}

/**
 * The same completions, whose outcomes are noted. A call with its caller's own credential says
 * nothing of the operator's.
 */
export function noteOutcomes(completions: VerifiedCompletions, outcomes: ModelOutcomes): VerifiedCompletions {
  const isOperators = ({ callerCredential }: VerifiedCall) => callerCredential === null

  async function noting<Answer>(call: VerifiedCall, ask: () => Promise<Answer>): Promise<Answer> {
    try {
      return await ask()
    } catch (error) {
      const isUnknown = error instanceof ApiError && error.code === 'provider_refused' && error.status === 404
      if (isUnknown && isOperators(call)) outcomes.noteMissing(call.request.model)
      throw error
    }
  }

  async function* notingRecord(
    call: VerifiedCall,
    events: AsyncIterable<VerifiedEvent>,
  ): AsyncGenerator<VerifiedEvent> {
    for await (const event of events) {
      if (event.kind === 'record' && isOperators(call)) outcomes.noteServed(call.request.model)
      yield event
    }
  }

  return {
    async complete(call) {
      const record = await noting(call, () => completions.complete(call))
      if (isOperators(call)) outcomes.noteServed(call.request.model)
      return record
    },
    stream: async (call) => notingRecord(call, await noting(call, () => completions.stream(call))),
  }
}
