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
import { credentialHeaders, hasCredential } from './completion-call.ts'
import type { ModelOutcomes } from './verified-completions.ts'

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
  readonly credentials: () => ReadonlyMap<string, string>
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
      hasCredential(call, table, credentials()) &&
      (call.callerCredential !== null || !outcomes.isMissing(call.model))
    )
  }

  return (callerCredential) => {
    const table = providersOf(enclaves)
    // In an order that no call changes: a client takes the first for its default.
    const served = outcomes.served().toSorted()
    const owners = new Map(offersOf(table, [...providerModels, ...served]))
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
      'The models of providers for which this service has a credential; with your own Fine-Tune-Authorization, the models of every provider. A provider may serve more models: an id that matches its patterns is listed when the operator names it, or when a completion with it was made.',
    headers: credentialHeaders,
    list: (headers) => list(headers['fine-tune-authorization'] ?? null),
  })
}
