import type { Route } from '../../api/route.ts'
import type { Database } from '../../storage/database.ts'
import type { RecordsStore } from '../records/records-store.ts'
import { createAnchoredHeadsStore } from './anchored-heads-store.ts'
import { createBootStatementsStore } from './boot-statements-store.ts'
import { findRoutes } from './find-routes.ts'
import { createFinder } from './finder.ts'
import { createHeadAttestationsStore } from './head-attestations-store.ts'
import { logRoutes } from './log-routes.ts'
import { createLogs } from './logs.ts'
import { createLogsStore } from './logs-store.ts'

export function openLogs(
  config: { readonly isHistoryOpen: boolean; readonly isEvidencePublic: boolean },
  { database, records }: { readonly database: Database; readonly records: RecordsStore },
): { readonly routes: readonly Route[] } {
  const { isHistoryOpen: isOpen, isEvidencePublic } = config
  const logs = createLogsStore(database)
  const headAttestations = createHeadAttestationsStore(database)
  const bootStatements = createBootStatementsStore(database)
  const heads = createAnchoredHeadsStore(database)
  return {
    routes: [
      ...logRoutes(createLogs({ records, isOpen, logs, headAttestations, bootStatements })),
      ...findRoutes(createFinder({ records, logs, heads, isEvidencePublic })),
    ],
  }
}
