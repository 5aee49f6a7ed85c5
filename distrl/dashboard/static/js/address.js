// The part of a view's state that is in the address, one value by name. Usual values are left out.
import { chartQuery, keepInAddress } from "./chartstate.js";

export const remembered = (name, usual = "") => chartQuery().get(name) ?? usual;

export const remember = (name, value, usual = "") => keepInAddress({ [name]: value === usual ? null : value });
