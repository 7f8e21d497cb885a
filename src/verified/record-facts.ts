import type { Receipt } from '../../attestation/receipt.ts'
import { PARSED_LENGTH_MAX, readUsage } from '../chat/token-estimates.ts'
import type { InferenceFacts } from '../observability/call-scope.ts'
import type { StoredRecord } from './records-store.ts'

/** What traces tell of a verified completion: what its receipt says, and its usage; no text of it. */
export function factsOfRecord({
  receipt,
  response,
}: Pick<StoredRecord, 'receipt' | 'response'>): InferenceFacts {
  const { provider, model, started_at, finished_at } = JSON.parse(receipt) as ReceiptFacts
  const usage = response.length > PARSED_LENGTH_MAX ? null : readUsage(response)
  return {
    provider: provider.name,
    ...(model.returned === null ? {} : { responseModel: model.returned }),
    ...(usage === null ? {} : { inputTokens: usage.prompt, outputTokens: usage.answer }),
    enclave: { startedAtMs: started_at, finishedAtMs: finished_at },
  }
}

/** The committer has checked the receipt's form. */
type ReceiptFacts = Pick<Receipt, 'provider' | 'model' | 'started_at' | 'finished_at'>
