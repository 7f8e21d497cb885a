/**
 * A link to another page of this gateway opens a tab, because a change of page would lose this
 * tab's key. The new tab takes the expectations along (kit/tab-expectations.ts), and drops its
 * opener at once.
 */
export const NEW_TAB = { target: '_blank', rel: 'opener' } as const
