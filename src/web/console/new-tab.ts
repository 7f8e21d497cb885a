/**
 * Opens links to other pages of this gateway in a new tab, because leaving the page would lose this
 * tab's key. The new tab gets the expectations (kit/tab-expectations.ts) and removes the reference
 * to its opener at once.
 */
export const NEW_TAB = { target: '_blank', rel: 'opener' } as const
