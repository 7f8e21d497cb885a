/**
 * Opens links to other pages of this gateway in a new tab. If the reader left this page, this tab's
 * key would be lost. The new tab gets the expectations (kit/tab-expectations.ts). Then it removes
 * at once the reference to the tab that opened it.
 */
export const NEW_TAB = { target: '_blank', rel: 'opener' } as const
