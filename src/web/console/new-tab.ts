/**
 * A link to another page of this gateway opens a tab, since this one would lose its key. The tab
 * takes along what is expected (kit/tab-expectations.ts), and drops its opener at once.
 */
export const NEW_TAB = { target: '_blank', rel: 'opener' } as const
