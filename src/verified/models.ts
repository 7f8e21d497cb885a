import type { ProviderEntry } from '../../enclave/protocol/messages.ts'
import type { Route } from '../api/route.ts'
import {
  describeModel,
  type ListedModel,
  modelListRoutes,
  offersOf,
  providersOf,
} from '../chat/models.ts'
import type { EnclavePool } from '../enclaves/enclave-pool.ts'
import { LruMap } from '../runtime/lru-map.ts'
import { credentialHeaders, hasCredential } from './provider-credentials.ts'

/**
 * Lists the models that can be verified now: that a provider serves whose credential is there, or
 * of every provider with a caller's own.
 */
type VerifiedModels = (callerCredential: string | null) => readonly ListedModel[]

/** Verified models, by the enclaves' provider tables. None while the enclaves are away. */
export function createVerifiedModels({
  enclaves,
  providerModels,
  credentials,
  outcomes,
  startedAt,
}: {
  readonly enclaves: Pick<EnclavePool, 'identities'>
  /** Model ids, by configuration. */
  readonly providerModels: readonly string[]
  /** The operator's credentials, by provider name. */
  readonly credentials: ReadonlyMap<string, string>
  readonly outcomes: Pick<ModelOutcomes, 'served' | 'isMissing'>
  /** When the gateway started, Unix seconds. */
  readonly startedAt: number
}): VerifiedModels {
  /**
   * A provider said to the operator's credential that it does not have a model: that is nothing to
   * a caller's own.
   */
  function isVerifiable(
    table: readonly ProviderEntry[],
    call: { readonly model: string; readonly callerCredential: string | null },
  ): boolean {
    return (
      hasCredential(call, table, credentials) &&
      (call.callerCredential !== null || !outcomes.isMissing(call.model))
    )
  }

  return (callerCredential) => {
    const table = providersOf(enclaves)
    const owners = new Map(offersOf(table, [...providerModels, ...outcomes.served()]))
    return [...owners]
      .filter(([model]) => isVerifiable(table, { model, callerCredential }))
      .map(([id, owner]) => describeModel({ id, owner, startedAt }))
  }
}

/** `GET /v1/verified/models`: what can be verified, and `…/{model}`, one of them. */
export function verifiedModelRoutes(list: VerifiedModels): readonly Route[] {
  return modelListRoutes({
    path: '/v1/verified/models',
    summaries: ['Models that can be verified now', 'One model that can be verified now'],
    description:
      "Of providers whose credential is there; with a Fine-Tune-Authorization of the caller's own, of every provider. A provider may serve more: ids of its patterns are listed when the operator names them, or when a completion of theirs was made.",
    headers: credentialHeaders,
    list: (headers) => list(headers['fine-tune-authorization'] ?? null),
  })
}

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
  const served = new LruMap<string, true>(OUTCOMES_MAX)
  const missing = new LruMap<string, number>(OUTCOMES_MAX)
  const isMissing = (model: string) =>
    now() - (missing.get(model) ?? Number.NEGATIVE_INFINITY) < MISSING_MS
  return {
    noteServed(model) {
      missing.delete(model)
      // The list is for everybody, and the name of a fine-tuned model says whose it is.
      if (model.startsWith('ft:')) return
      served.set(model, true)
    },
    noteMissing(model) {
      served.delete(model)
      missing.set(model, now())
    },
    served: () => [...served].map(([model]) => model),
    isMissing,
  }
}
