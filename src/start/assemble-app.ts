import { randomUUID } from 'node:crypto'
import { type App, type AppDependencies, createApp } from '../app.ts'
import type { GatewayConfig } from '../config.ts'
import type { Enclaves } from '../enclaves/enclaves.ts'
import type { Logger } from '../logger.ts'
import type { ApiKeys } from '../services/api-keys.ts'
import { createAttestationCheck } from '../services/attestation-check.ts'
import type { EvidenceSources } from '../services/evidence.ts'
import type { RelayerFollowers } from '../services/relayer-followers.ts'
import { createBootStatementsStore } from '../stores/boot-statements.ts'
import { createDatabaseCheck } from '../stores/database-check.ts'
import { createHeadAttestationsStore } from '../stores/head-attestations.ts'
import { createLogsStore } from '../stores/logs.ts'
import { createRecordsStore } from '../stores/records.ts'
import type { CallObserver } from '../telemetry/call-scope.ts'
import type { CallLimits } from './limits.ts'
import { type NodesPart, unixMs } from './nodes.ts'
import type { Parts } from './parts.ts'
import type { UpstreamPart } from './upstream.ts'

/**
 * Puts the API together out of what runs: the stores of the database, and the parts. Nothing runs that did not before.
 */
export function assembleApp(
  config: GatewayConfig,
  {
    parts,
    enclaves,
    committer,
    keys,
    limits,
    nodes,
    upstream,
    evidence,
    broadcaster,
    observers,
    log,
  }: {
    readonly parts: Parts
    readonly enclaves: Enclaves
    readonly committer: AppDependencies['committer']
    readonly keys: ApiKeys
    readonly limits: CallLimits
    readonly nodes: NodesPart
    readonly upstream: UpstreamPart
    readonly evidence: EvidenceSources
    readonly broadcaster: Pick<RelayerFollowers, 'status'>
    readonly observers: readonly CallObserver[]
    readonly log: Logger
  },
): App {
  const [database] = parts
  const { isHistoryOpen, keepAliveMs, bodyBytesMax, providerModels, shutdownGraceMs, logLevel, corsOrigins } =
    config
  return createApp({
    enclaves,
    committer,
    records: createRecordsStore(database),
    logs: createLogsStore(database),
    headAttestations: createHeadAttestationsStore(database),
    bootStatements: createBootStatementsStore(database),
    evidence,
    checks: {
      database: createDatabaseCheck(database),
      attestation: createAttestationCheck({ isRootKnown: config.isProduction, now: Date.now }),
      chain: () => broadcaster.status(),
    },
    keys,
    limiter: limits.limiter,
    idempotency: limits.idempotency,
    nodes: nodes.connected,
    registry: nodes.registry,
    upstream: upstream.services,
    credentials: config.credentials,
    settings: {
      isHistoryOpen,
      corsOrigins,
      keepAliveMs,
      bodyBytesMax,
      providerModels,
      shutdownGraceMs,
      logsRequests: logLevel === 'info' || logLevel === 'debug',
    },
    observers,
    log,
    now: unixMs,
    makeId,
    makeRequestId: () => `req_${makeId()}`,
  })
}

function makeId(): string {
  return randomUUID().replaceAll('-', '')
}
