import type { SearchAdapter } from './adapter.ts'
import { expectObject, listOf, memberOf } from './answer-members.ts'

/** Brave's web search. Without `text_decorations` its texts hold no HTML. An answer without hits has no `web`. */
export const BRAVE: SearchAdapter = {
  defaultUrl: 'https://api.search.brave.com/res/v1',
  request: ({ query, maxResults }, apiKey) => {
    const parameters = {
      q: query,
      count: String(maxResults),
      text_decorations: 'false',
      result_filter: 'web',
    }
    return {
      method: 'GET',
      path: `/web/search?${new URLSearchParams(parameters)}`,
      headers: { 'x-subscription-token': apiKey },
    }
  },
  readItems: (answer) => {
    expectObject(answer)
    return listOf(memberOf(answer, 'web') ?? {}, 'results').map((item) => ({
      title: memberOf(item, 'title'),
      url: memberOf(item, 'url'),
      snippet: memberOf(item, 'description'),
    }))
  },
}
