import { isJsonObject, type Json, memberOf } from '../../../attestation/json/value.ts'
import type { Gateway } from './gateway.ts'
import { GatewayFault } from './gateway-fault.ts'
import { readAhead } from './read-ahead.ts'

/** The records of one log, in the order of its leaves. */
export type RecordReader = {
  /** The record that says it is of this leaf, or null when the gateway does not give one. Ask for growing indexes. */
  take(index: number): Promise<Json | null>
  close(): Promise<void>
}

type Entry = { readonly index: number; readonly record: Json }

/** Gives a reader of the records of the leaves [start, end), which holds two pages at a time. */
export function openRecordReader(
  gateway: Pick<Gateway, 'fetchRecords'>,
  { notary, start, end }: { readonly notary: string; readonly start: number; readonly end: number },
): RecordReader {
  const pages = readAhead(readPages())
  let entries: Entry[] = []
  let isOver = false

  async function* readPages(): AsyncGenerator<Entry[]> {
    for (let position: number | null = start; position !== null && position < end; ) {
      const { records, next } = await gateway.fetchRecords(notary, position)
      yield indexRecords(records, { from: position, to: next ?? Number.POSITIVE_INFINITY, notary })
      position = next
    }
  }

  return {
    async take(index) {
      while (!isOver && (entries[0]?.index ?? -1) < index) {
        entries.shift()
        if (entries.length > 0) continue
        const page = await pages.next()
        isOver = page.done === true
        entries = page.done === true ? [] : page.value
      }
      const [first] = entries
      if (first?.index !== index) return null
      entries.shift()
      return first.record
    },
    close: async () => void (await pages.return(undefined)),
  }
}

/** A page's records with the indexes they claim, which must grow and lie within the page. */
function indexRecords(
  records: readonly Json[],
  { from, to, notary }: { readonly from: number; readonly to: number; readonly notary: string },
): Entry[] {
  let least = from
  return records.map((record) => {
    const receipt = isJsonObject(record) ? memberOf(record, 'receipt') : undefined
    const index = isJsonObject(receipt) ? memberOf(receipt, 'index') : undefined
    if (typeof index !== 'number' || !Number.isSafeInteger(index) || index < least || index >= to)
      throw new GatewayFault('answer_invalid', {
        where: `/v1/log/${notary}/records?start=${from}`,
        message: `expected a record of a leaf from ${least} on, got one of ${typeof index === 'number' ? index : 'none'}`,
      })
    least = index + 1
    return { index, record }
  })
}
