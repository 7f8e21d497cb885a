import { z } from 'zod'
import type { DialectName } from '#attestation/dialects/dialect-names.ts'
import { endpointOf } from '#enclave/protocol/choose-provider.ts'
import type { ProviderEntry } from '#enclave/protocol/enclave-api.ts'
import type { Route } from '../../api/route.ts'
import {
  ANTHROPIC_MODELS,
  describeListedModel,
  type ListedModel,
  listedModels,
  modelListRoutes,
  offersOf,
} from '../../chat/models.ts'
import type { EnclavePool } from '../../enclaves/enclave-pool.ts'
import { providersOf } from '../../enclaves/provider-table.ts'
import { credentialHeaders, hasCredential } from './completion-call.ts'
import type { ProviderLists } from './provider-lists.ts'
import type { ModelOutcomes } from './verified-completions.ts'

const verifiedModels = listedModels.extend({
  patterns: z.array(z.strictObject({ pattern: z.string(), owned_by: z.string() })),
})

/** Callers can use the listed models, and all other models whose ids match a pattern. */
type VerifiedModels = {
  readonly data: readonly ListedModel[]
  readonly patterns: readonly { readonly pattern: string; readonly owned_by: string }[]
}

/**
 * With a caller's credential, lists the models of every provider. Without a credential, lists only
 * the models of providers for which the operator has a credential.
 */
type ListVerifiedModels = (
  callerCredential: string | null,
  /** Providers without this dialect are left out. */
  dialect: DialectName,
) => VerifiedModels

/**
 * Reads the provider tables of the enclaves. Empty while no enclave is reachable. Calls never
 * change the order (provider name, then id), because clients take the first model as their default.
 */
export function createVerifiedModels({
  enclaves,
  providerModels,
  credentials,
  outcomes,
  lists,
  startedAt,
}: {
  readonly enclaves: Pick<EnclavePool, 'identities'>
  /** Ids from the gateway's configuration. */
  readonly providerModels: readonly string[]
  /** The operator's credentials, by provider name. */
  readonly credentials: () => ReadonlyMap<string, string>
  readonly outcomes: Pick<ModelOutcomes, 'served' | 'isMissing'>
  readonly lists: Pick<ProviderLists, 'listed'>
  /** When the gateway started, Unix seconds. */
  readonly startedAt: number
}): ListVerifiedModels {
  return (callerCredential, dialect) => {
    const table = providersOf(enclaves).filter((entry) => endpointOf(entry, dialect) !== null)
    const own = credentials()
    const paid = new Map<string, boolean>()
    /** Looks up each provider only once: its credential is for all of its models. */
    const isPaid = (model: string, owner: string) => {
      const known =
        paid.get(owner) ?? hasCredential({ model, callerCredential, dialect }, table, own)
      paid.set(owner, known)
      return known
    }
    // A caller's credential may reach models that the operator's credential does not reach.
    const isThere = (model: string) => callerCredential !== null || !outcomes.isMissing(model)
    const owners = new Map(
      offersOf(table, [...providerModels, ...lists.listed(), ...outcomes.served()]),
    )
    const data = [...owners]
      .filter(([model, owner]) => isPaid(model, owner) && isThere(model))
      .map(([id, owner]) => describeListedModel({ id, owner, startedAt }))
      .toSorted((one, other) => compare(one.owned_by, other.owned_by) || compare(one.id, other.id))
    const patterns = patternsOf(table).filter((one) => isPaid(one.pattern, one.owned_by))
    return { data, patterns }
  }
}

/** Finds the providers of patterns. A pattern matches itself, so it is looked up like an id. */
function patternsOf(table: readonly ProviderEntry[]): VerifiedModels['patterns'] {
  const patterns = table.flatMap(({ models }) => models.filter((model) => model.includes('*')))
  return offersOf(table, [...new Set(patterns)])
    .filter(([pattern]) => pattern.includes('*'))
    .map(([pattern, owned_by]) => ({ pattern, owned_by }))
    .toSorted((one, other) => compare(one.owned_by, other.owned_by))
}

/** Compares code units, so that the order is the same in every locale. */
function compare(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0
}

export function verifiedModelRoutes(list: ListVerifiedModels): readonly Route[] {
  const listed = (dialect: DialectName) => ({
    headers: credentialHeaders,
    list: (headers: z.output<typeof credentialHeaders>) =>
      list(headers['fine-tune-authorization'] ?? null, dialect),
  })
  const ofAnthropic = modelListRoutes({
    ...listed('messages'),
    ...ANTHROPIC_MODELS,
    path: '/v1/verified/anthropic/v1/models',
    summaries: [
      "Models whose Messages can be verified now, in Anthropic's form",
      "One model whose Messages can be verified now, in Anthropic's form",
    ],
  })
  const ofOpenAi = modelListRoutes({
    ...listed('chat'),
    path: '/v1/verified/models',
    summaries: ['Models that can be verified now', 'One model that can be verified now'],
    description:
      'The models of providers for which this service has a credential; with your own ' +
      'Fine-Tune-Authorization, the models of every provider. The service asks its providers ' +
      'which models they have. `patterns`: you can also ask for a model that is not listed ' +
      'when its id matches a pattern, where `*` stands for any characters; the provider ' +
      'decides whether it has the model.',
    reply: { name: 'VerifiedModelList', schema: verifiedModels },
  })
  return [...ofOpenAi, ...ofAnthropic]
}
