import { EndpointError } from '../upstream/endpoint-error.ts'
import type { SearchAdapter } from './adapter.ts'
import { expectObject, listOf, memberOf } from './answer-members.ts'

/**
 * SerpApi's Google results. Its key can stand in the URL alone. `error` in a search whose status is Success only says that nothing
 * was found; in any other it is a failure, whatever the HTTP status.
 */
export const SERPAPI: SearchAdapter = {
  defaultUrl: 'https://serpapi.com',
  request: ({ query }, apiKey) => {
    const parameters = { engine: 'google', output: 'json', q: query, api_key: apiKey }
    return { method: 'GET', path: `/search.json?${new URLSearchParams(parameters)}` }
  },
  readItems: (answer) => {
    expectObject(answer)
    if (memberOf(memberOf(answer, 'search_metadata'), 'status') !== 'Success')
      throw new EndpointError('bad_answer', 'expected a search with status Success')
    return listOf(answer, 'organic_results').map((item) => ({
      title: memberOf(item, 'title'),
      url: memberOf(item, 'link'),
      snippet: memberOf(item, 'snippet'),
    }))
  },
}
