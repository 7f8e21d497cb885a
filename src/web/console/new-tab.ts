/**
 * Opens links to other pages of this gateway in a new tab, because leaving this page would lose the
 * tab's key. The new tab gets the expectations (kit/tab-expectations.ts), and then removes its
 * reference to the old tab.
 */
export const NEW_TAB = { target: '_blank', rel: 'opener' } as const
