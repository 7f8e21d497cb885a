import type { EndpointCall } from '../upstream/endpoint.ts'

export type SearchQuery = { readonly query: string; readonly maxResults: number }

/** A result as a provider has it; nothing of it is checked. */
export type FoundItem = { readonly title: unknown; readonly url: unknown; readonly snippet: unknown }

/** How one provider is asked, and what its answer says. */
export type SearchAdapter = {
  /** Where it is, unless the operator says otherwise; null when only the operator can know. */
  readonly defaultUrl: string | null
  /** The call for a query. `apiKey` is empty for a provider without keys. */
  request(query: SearchQuery, apiKey: string): Pick<EndpointCall, 'method' | 'path' | 'headers' | 'body'>
  /** What an answer with status 200 holds, best first. Throws EndpointError `bad_answer`. */
  readItems(answer: unknown): readonly FoundItem[]
}
