import { z } from 'zod'
import { encodeHex } from '#attestation/bytes.ts'
import {
  PROVIDER_EVIDENCE_BYTES_MAX,
  PROVIDER_KINDS,
} from '#attestation/providers/evidence/evidence-document.ts'
import type { ProviderEntry } from '#enclave/protocol/enclave-api.ts'
import { createAdmission } from '../api/admission.ts'
import { ApiError } from '../api/errors.ts'
import { defineRoute, type Route } from '../api/route.ts'
import { digest, hash32, hexText } from '../api/schemas.ts'
import type { CollectedProvider } from './collect-evidence.ts'
import type { ProviderEvidenceStore, StoredEvidence } from './provider-evidence-store.ts'

/**
 * Maximum numbers of reads at a time. The list and the documents have separate limits, so that
 * neither blocks the other. All documents together need at most 64 MiB of memory.
 */
const LIST_READS_MAX = 32
export const DOCUMENT_READS_MAX = 16

const EVIDENCE_PATH = '/v1/providers/evidence'

const unixMs = z.int().min(0)
const providerList = z.strictObject({
  object: z.literal('list'),
  data: z.array(
    z.strictObject({
      id: z.string(),
      origin: z.string(),
      kind: z.enum(PROVIDER_KINDS).nullable(),
      models: z.array(z.string()),
      evidence: z
        .strictObject({
          digest,
          url: z.string(),
          fetched_at: unixMs,
          ends_at: unixMs.nullable(),
          block: z
            .strictObject({ chain_id: z.int(), number: z.int().min(0), hash: hash32 })
            .nullable(),
        })
        .nullable(),
      keys: z.array(
        z.strictObject({
          spki_sha256: digest,
          first_seen: unixMs,
          last_seen: unixMs,
          stated: z.boolean(),
        }),
      ),
    }),
  ),
})

const digestParameter = z.object({ digest: hexText(32, 32, '64 hex digits') })

type EvidenceReads = {
  /** The tables of the enclaves in use. */
  readonly table: () => readonly ProviderEntry[]
  /** The providers in the table whose evidence is collected. */
  readonly collected: () => readonly CollectedProvider[]
  readonly evidence: Pick<ProviderEvidenceStore, 'findNewest' | 'listKeys' | 'read'>
}

/** `GET /v1/providers`, and `GET /v1/providers/evidence/{digest}`. */
export function evidenceRoutes(reads: EvidenceReads): readonly Route[] {
  const open = {
    method: 'GET',
    tag: 'Service',
    scope: 'public',
  } as const
  const documentBytesMax = DOCUMENT_READS_MAX * PROVIDER_EVIDENCE_BYTES_MAX
  return [
    defineRoute({
      ...open,
      path: '/v1/providers',
      summary: 'The providers, with the newest evidence of those in a TEE, and their TLS keys',
      description:
        'The gateway is not trusted with it: judge the evidence under a policy of your own, and demand its keys in `affidavit.provider_keys`. `stated`: the newest evidence states the key.',
      reply: { name: 'ProviderList', schema: providerList },
      errors: ['not_ready', 'overloaded'],
      admission: createAdmission({ callsMax: LIST_READS_MAX, bytesMax: 0 }),
      handler: async () => ({ object: 'list', data: await listProviders(reads) }),
    }),
    defineRoute({
      ...open,
      path: `${EVIDENCE_PATH}/:digest`,
      summary: 'One provider evidence, its exact bytes',
      params: digestParameter,
      reply: { name: 'ProviderEvidence', schema: z.looseObject({}) },
      errors: ['not_found', 'not_ready', 'overloaded'],
      admission: createAdmission({ callsMax: DOCUMENT_READS_MAX, bytesMax: documentBytesMax }),
      async handler({ context, params, slot }) {
        const document = await reads.evidence.read(params.digest)
        if (document === null)
          throw new ApiError('not_found', 'There is no provider evidence with this digest')
        slot.reserve(document.length)
        context.set('cache-control', 'public, max-age=31536000, immutable')
        // Evidence is JSON in UTF-8, so its text has the same bytes.
        return new TextDecoder().decode(document)
      },
    }),
  ]
}

async function listProviders({ table, collected, evidence }: EvidenceReads) {
  const attested = new Map(collected().map((provider) => [provider.origin, provider]))
  return await Promise.all(
    mergeEntries(table()).map(async ({ name, origin, models }) => {
      const provider = attested.get(origin)
      const [newest, seen] =
        provider === undefined
          ? [null, []]
          : await Promise.all([evidence.findNewest(provider), evidence.listKeys(origin)])
      return {
        id: name,
        origin,
        kind: provider?.kind ?? null,
        models,
        evidence: newest && describeEvidence(newest),
        keys: seen.map(({ spkiSha256, firstSeenMs, lastSeenMs }) => ({
          spki_sha256: spkiSha256,
          first_seen: firstSeenMs,
          last_seen: lastSeenMs,
          stated: newest?.keys.includes(spkiSha256) ?? false,
        })),
      }
    }),
  )
}

type ListedEntry = Pick<ProviderEntry, 'name' | 'origin' | 'models'>

/** Returns each provider once, with the models of all its entries. */
function mergeEntries(table: readonly ProviderEntry[]): readonly ListedEntry[] {
  const merged = new Map<string, ListedEntry>()
  for (const { name, origin, models } of table) {
    const id = `${name} ${origin}`
    const known = merged.get(id)?.models ?? []
    merged.set(id, { name, origin, models: [...new Set([...known, ...models])] })
  }
  return [...merged.values()]
}

function describeEvidence({ digest: id, fetchedAtMs, endsAtMs, block }: StoredEvidence) {
  return {
    digest: id,
    url: `${EVIDENCE_PATH}/${id}`,
    fetched_at: fetchedAtMs,
    ends_at: endsAtMs,
    block: block && {
      chain_id: block.chainId,
      number: block.number,
      hash: `0x${encodeHex(block.hash)}`,
    },
  }
}
